#include "tests/harness/cli/subprocess.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace kvarena::testing {
namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void redirect(const std::filesystem::path& path, int flags, int descriptor) {
  const int opened = open(path.c_str(), flags, 0600);
  if (opened < 0 || dup2(opened, descriptor) < 0) _exit(126);
}

}  // namespace

Finished run_kvarena(const std::vector<std::string>& args, const RunSetup& setup) {
  const ScratchFolder streams;
  std::ofstream(streams / "in", std::ios::binary) << setup.input;
  const std::string program = KVARENA_BINARY_DIR "/bin/kvarena";
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const std::string& arg : args) words.push_back(const_cast<char*>(arg.c_str()));
  words.push_back(nullptr);

  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    redirect(streams / "in", O_RDONLY, STDIN_FILENO);
    redirect(streams / "out", O_WRONLY | O_CREAT, STDOUT_FILENO);
    redirect(streams / "err", O_WRONLY | O_CREAT, STDERR_FILENO);
    for (const auto& [name, value] : setup.environment) setenv(name.c_str(), value.c_str(), 1);
    if (!setup.folder.empty() && chdir(setup.folder.c_str()) != 0) _exit(126);
    execv(program.c_str(), words.data());
    _exit(127);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid failed");
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content_of(streams / "out"),
          content_of(streams / "err")};
}

ScratchFolder::ScratchFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "kvarena-cli-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no scratch folder");
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> ScratchFolder::content() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
    names.push_back(std::filesystem::relative(entry.path(), path_).string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace kvarena::testing
