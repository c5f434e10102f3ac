#include "metrics/jsonl.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

// nlohmann's messages begin with "[json.exception.parse_error.101] "; a reader wants what follows.
std::string plain_message(const nlohmann::json::exception& error) {
  const std::string_view message = error.what();
  const size_t end = message.find("] ");
  return std::string(end == std::string_view::npos ? message : message.substr(end + 2));
}

void visit_line(std::string_view line, int64_t number, const std::string& place,
                const std::function<void(std::string_view, int64_t)>& visit) {
  try {
    visit(line, number);
  } catch (const nlohmann::json::parse_error& error) {
    fail({.place = place,
          .found = plain_message(error),
          .expected = "one JSON value on each line",
          .action = "a file that holds one JSON array or spreads values over lines is not JSON Lines"});
  } catch (const nlohmann::json::exception& error) {
    fail({.place = place, .found = plain_message(error), .expected = "the fields this metric needs"});
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", place, error.what()));
  }
}

}  // namespace

void for_each_line(const std::filesystem::path& file,
                   const std::function<void(std::string_view line, int64_t number)>& visit) {
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file)) {
    fail({.place = file.string(),
          .found = std::filesystem::is_directory(file) ? "a folder" : std::strerror(errno),
          .expected = "a readable JSON Lines file"});
  }
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);  // byte order mark
    if (strip(line).empty()) continue;
    const std::string place = fmt::format("{}:{}", file.string(), number);
    size_t bad_byte = 0;
    if (!is_valid_utf8(line, &bad_byte)) {
      fail({.place = place,
            .found = fmt::format("byte {:#04x} at column {}", static_cast<unsigned char>(line[bad_byte]), bad_byte + 1),
            .expected = "UTF-8",
            .action = "convert the file, for example with iconv"});
    }
    require_shallow(line, place);
    visit_line(line, number, place, visit);
  }
  if (in.bad()) fail({.place = file.string(), .found = std::strerror(errno), .expected = "a file readable to its end"});
}

}  // namespace kvarena::metrics
