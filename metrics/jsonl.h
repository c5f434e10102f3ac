#pragma once
// JSON Lines, read one line at a time, with errors that name file and line.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace kvarena::metrics {

/// Calls `visit(line, number)` for every line that is not blank; numbers start at 1; a trailing carriage return is cut.
/// Only one line is in memory at a time. Throws UserError when the file cannot be read or a line is not UTF-8. A
/// UserError or a JSON error thrown by `visit` comes out as a UserError that starts with "file:line: ".
void for_each_line(const std::filesystem::path& file,
                   const std::function<void(std::string_view line, int64_t number)>& visit);

}  // namespace kvarena::metrics
