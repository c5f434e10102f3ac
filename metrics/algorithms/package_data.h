#pragma once
// Data files of Python packages that scorers read, in the folders of KVARENA_HOME where scripts/setup puts them.

#include <filesystem>
#include <string>

namespace kvarena::metrics {

/// $KVARENA_HOME/<name>; KVARENA_HOME is ~/.cache/kvarena where it is not set.
[[nodiscard]] std::filesystem::path package_folder(const std::string& name);

/// Content of a data file of `package`. Throws UserError that names the missing file and says where to get it.
[[nodiscard]] std::string read_package_file(const std::filesystem::path& file, const std::string& package);

/// Throws UserError that says what was found in a data file and how to fetch it anew.
[[noreturn]] void fail_package_file(const std::filesystem::path& file, const std::string& package,
                                    const std::string& found);

}  // namespace kvarena::metrics
