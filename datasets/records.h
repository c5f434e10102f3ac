#pragma once
// Rows of foreign files, one at a time: JSON Lines, or one JSON array of objects. Files are streamed; at most one row
// is in memory.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::datasets {

/// Longest row that is read, in bytes. The longest official rows (InfiniteBench, LongBench v2) stay below 24 MiB.
inline constexpr size_t kMaxRowBytes = size_t{64} << 20;

/// A parsed row; keys keep the order of the file, because some prompts print them.
using Row = nlohmann::ordered_json;

/// One row as it stands in the file.
struct Record {
  std::string text;   // without the line end
  std::string place;  // "qasper.jsonl:17": path as given, and the line on which the row starts
};

/// Reads rows in file order. A file whose first character is `[` is an array of objects; anything else is JSON Lines
/// (blank lines are skipped, CRLF and a byte-order mark are accepted).
class RecordReader {
 public:
  /// Throws UserError naming the file when it cannot be opened.
  explicit RecordReader(const std::filesystem::path& path, size_t max_row_bytes = kMaxRowBytes);

  /// Next row, or nothing at the end. Throws UserError naming file and line for a row longer than the bound, for
  /// bytes that are not UTF-8, and for an array that does not end.
  [[nodiscard]] std::optional<Record> next();

 private:
  [[nodiscard]] std::optional<Record> next_line();
  [[nodiscard]] std::optional<Record> next_element();
  [[nodiscard]] int peek();
  int take();
  void append(Record& record, int byte) const;
  [[nodiscard]] std::string place(int64_t line) const;

  std::filesystem::path path_;
  std::ifstream file_;
  size_t max_row_bytes_;
  bool array_ = false;
  bool may_end_ = true;  // `]` may come next: before the first element and after the last
  int64_t line_ = 1;
};

/// Rows of a file, read to its end. Throws as RecordReader does.
[[nodiscard]] int64_t count_records(const std::filesystem::path& path);

/// The row as a JSON object. Throws UserError "place: found text that is not JSON at column 7 ...".
[[nodiscard]] Row parse_object(const Record& record);

/// A required string field. Throws UserError naming place and field, and what was found instead.
[[nodiscard]] std::string string_field(const Row& row, const char* field, const std::string& place);
/// A required integer field.
[[nodiscard]] int64_t integer_field(const Row& row, const char* field, const std::string& place);
/// A required list of strings.
[[nodiscard]] std::vector<std::string> strings_field(const Row& row, const char* field, const std::string& place);
/// A required field of any kind.
[[nodiscard]] const Row& any_field(const Row& row, const char* field, const std::string& place);

/// Byte offset of the first byte that is not part of well-formed UTF-8, or npos.
[[nodiscard]] size_t find_bad_utf8(std::string_view text);

}  // namespace kvarena::datasets
