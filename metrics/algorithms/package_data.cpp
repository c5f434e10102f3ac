#include "metrics/algorithms/package_data.h"

#include <cstdlib>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/own_files.h"

namespace kvarena::metrics {

std::filesystem::path package_folder(const std::string& name) {
  if (const char* home = std::getenv("KVARENA_HOME"); home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / name;
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "." : home) / ".cache/kvarena" / name;
}

std::string read_package_file(const std::filesystem::path& file, const std::string& package) {
  if (!std::filesystem::exists(file)) fail_package_file(file, package, "no such file");
  return read_file(file);
}

void fail_package_file(const std::filesystem::path& file, const std::string& package, const std::string& found) {
  fail({.place = file.string(),
        .found = found,
        .expected = "the data file of the Python package " + package,
        .action = setup_command() + " fetches it"});
}

}  // namespace kvarena::metrics
