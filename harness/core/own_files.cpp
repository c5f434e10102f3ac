#include "harness/core/own_files.h"

#include <fmt/format.h>

#include "harness/core/error.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

/// The program lies in `bin` of its folder.
fs::path own_folder() { return fs::read_symlink("/proc/self/exe").parent_path().parent_path(); }

}  // namespace

fs::path own_file(const std::string& name) {
  const fs::path path = own_folder() / name;
  if (fs::exists(path)) return fs::canonical(path);
  fail({.place = fs::read_symlink("/proc/self/exe").string(),
        .found = fmt::format("no {}", path.string()),
        .expected = "the program in the folder that it was built or installed in",
        .action = "put a link to it where a copy is"});
}

fs::path find_config(const fs::path& path) {
  const bool own = !path.empty() && *path.begin() == "configs" && !fs::exists(path) && fs::exists(own_folder() / path);
  return own ? own_file(path.string()) : path;
}

std::string setup_command() {
  const fs::path installed = own_folder() / "setup.py";
  return fs::exists(installed) ? fmt::format("`python3 {}`", installed.string()) : "`scripts/setup`";
}

}  // namespace kvarena
