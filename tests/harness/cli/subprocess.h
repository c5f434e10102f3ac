#pragma once
// Runs the built program as a user does: words in, both streams and the exit code out.

#include <filesystem>
#include <string>
#include <vector>

namespace kvarena::testing {

struct Finished {
  int code = -1;  // 128 + signal when killed by one
  std::string out;
  std::string err;
};

struct RunSetup {
  std::string input;                                             // on standard input
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  std::filesystem::path folder;                                  // working folder; empty: ours
};

/// Runs build/<preset>/bin/kvarena. Standard streams are files, so the program sees no terminal.
[[nodiscard]] Finished run_kvarena(const std::vector<std::string>& args, const RunSetup& setup = {});

/// A folder that is empty at the start of a test and gone at its end.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  /// Names of everything inside, sorted, relative.
  [[nodiscard]] std::vector<std::string> content() const;

 private:
  std::filesystem::path path_;
};

}  // namespace kvarena::testing
