// kvarena: answers at once what the build could answer, and becomes kvarena-engine for everything else.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "harness/core/error.h"
#include "harness/terminal/kept_answers.h"

namespace kvarena::launcher {

extern const std::string_view kKeptAnswers;  // made by the build

namespace {

bool plugins_are_asked_for() {
  const char* listed = std::getenv("KVARENA_PLUGINS");
  return listed != nullptr && *listed != '\0';
}

int print_answer(const KeptAnswer& answer) {
  try {
    print(answer.page);
    flush_output();
    return answer.code;
  } catch (const UserError& error) {
    fmt::print(stderr, "kvarena: {}\n", error.what());
    return 1;
  }
}

/// Only returns when there is no engine.
int become_engine(char** argv) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path engine = self.parent_path() / "kvarena-engine";
  execv(engine.c_str(), argv);
  fmt::print(stderr, "kvarena: {}: {}; it belongs beside kvarena: build the target \"kvarena\" again\n",
             engine.string(), std::strerror(errno));
  return 1;
}

}  // namespace
}  // namespace kvarena::launcher

int main(int argc, char** argv) {
  using namespace kvarena::launcher;
  if (!plugins_are_asked_for()) {
    const auto answer = kvarena::find_kept_answer(kKeptAnswers, {argv + 1, argv + argc});
    if (answer) return print_answer(*answer);
  }
  return become_engine(argv);
}
