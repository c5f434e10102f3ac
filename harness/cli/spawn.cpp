#include "harness/cli/spawn.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace kvarena::cli {

int spawn(Spawn program) {
  std::vector<char*> arguments;
  for (std::string& word : program.words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto& [name, value] : program.environment) ::setenv(name.c_str(), value.c_str(), 1);
    const bool there = program.folder.empty() || ::chdir(program.folder.c_str()) == 0;
    if (there) ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

}  // namespace kvarena::cli
