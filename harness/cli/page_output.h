#pragma once
// Destination and format of a page: --out and --format.

#include <filesystem>
#include <optional>
#include <string>

#include "harness/cli/option_set.h"
#include "reports/document.h"

namespace kvarena::cli {

struct PageOutput {
  std::string format;
  std::optional<std::filesystem::path> out;

  /// `otherwise`: where a page goes without --out.
  void declare(OptionSet& o, const char* otherwise = "standard output");
  /// --format, else the ending of --out, else Markdown. Throws UserError for what is no format.
  [[nodiscard]] reports::Format chosen() const;
  /// Writes to the file, which is then named on standard error, or to standard output.
  void write(const std::string& text) const;
};

}  // namespace kvarena::cli
