#include "datasets/records.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <ios>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/json_text.h"

namespace kvarena::datasets {

size_t find_bad_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t i = 0;
  while (i < text.size()) {
    const unsigned char lead = bytes[i];
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || i + length > text.size()) return i;
    for (size_t k = 1; k < length; ++k) {
      if ((bytes[i + k] & 0xC0) != 0x80) return i;
    }
    // Over-long forms, surrogates and code points above U+10FFFF.
    const unsigned char second = bytes[i + 1];
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
        (lead == 0xF4 && second > 0x8F)) {
      return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

namespace {

bool is_blank(int byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

}  // namespace

RecordReader::RecordReader(const std::filesystem::path& path, size_t max_row_bytes)
    : path_(path), file_(path, std::ios::binary), max_row_bytes_(max_row_bytes) {
  if (!file_ || std::filesystem::is_directory(path)) {
    fail({.place = path.string(),
          .found = std::filesystem::is_directory(path) ? "a folder" : std::strerror(errno),
          .expected = "a readable data file"});
  }
  if (peek() == 0xEF) {  // byte-order mark EF BB BF
    char mark[3] = {};
    file_.read(mark, 3);
    if (std::memcmp(mark, "\xEF\xBB\xBF", 3) != 0) file_.seekg(0);
  }
  while (is_blank(peek())) take();
  array_ = peek() == '[';
  if (array_) take();
}

std::string RecordReader::place(int64_t line) const { return fmt::format("{}:{}", path_.string(), line); }

// The buffer is asked directly: a stream's own get() costs several times as much a byte.
int RecordReader::peek() { return file_.rdbuf()->sgetc(); }

int RecordReader::take() {
  const int byte = file_.rdbuf()->sbumpc();
  if (byte == '\n') ++line_;
  return byte;
}

void RecordReader::append(Record& record, int byte) const {
  if (record.text.size() == max_row_bytes_) {
    fail({.place = record.place,
          .found = fmt::format("a row of more than {} bytes", max_row_bytes_),
          .expected = "one JSON object a row",
          .action = "check that this is the official file"});
  }
  record.text.push_back(static_cast<char>(byte));
}

std::optional<Record> RecordReader::next() {
  std::optional<Record> record;
  try {
    record = array_ ? next_element() : next_line();
  } catch (const std::ios_base::failure& error) {
    fail({.place = place(line_), .found = error.what(), .expected = "a readable data file"});
  }
  if (!record) return record;
  const size_t bad = find_bad_utf8(record->text);
  if (bad != std::string_view::npos) {
    fail({.place = record->place,
          .found = fmt::format("byte 0x{:02X} at column {}", static_cast<unsigned char>(record->text[bad]), bad + 1),
          .expected = "UTF-8"});
  }
  return record;
}

std::optional<Record> RecordReader::next_line() {
  while (peek() != EOF) {
    Record record{.text = {}, .place = place(line_)};
    for (int byte = take(); byte != EOF && byte != '\n'; byte = take()) append(record, byte);
    if (!record.text.empty() && record.text.back() == '\r') record.text.pop_back();
    if (record.text.find_first_not_of(" \t\r") != std::string::npos) return record;
  }
  return std::nullopt;
}

// An element ends at the comma or bracket that stands outside of its own brackets and strings; what is between is
// checked by the JSON parser.
std::optional<Record> RecordReader::next_element() {
  Record record;
  int64_t depth = 0;
  bool in_string = false;
  bool escaped = false;
  while (true) {
    const int64_t line = line_;
    const int byte = take();
    if (byte == EOF) fail({.place = place(line), .found = "end of file", .expected = "`]` at the end of the array"});
    if (!in_string && depth == 0) {
      if (record.text.empty() && is_blank(byte)) continue;
      if (byte == ']' && record.text.empty() && may_end_) {
        file_.rdbuf()->sungetc();  // asked again, the answer is the same
        return std::nullopt;
      }
      if (byte == ']' || byte == ',') {
        if (record.text.empty()) {
          fail({.place = place(line), .found = std::string(1, static_cast<char>(byte)), .expected = "a JSON object"});
        }
        may_end_ = byte == ']';
        if (byte == ']') file_.rdbuf()->sungetc();  // the next call sees an array without further elements
        return record;
      }
    }
    if (record.text.empty()) record.place = place(line);
    append(record, byte);
    if (in_string) {
      in_string = escaped || byte != '"';
      escaped = !escaped && byte == '\\';
    } else if (byte == '"') {
      in_string = true;
    } else if (byte == '{' || byte == '[') {
      ++depth;
    } else if (byte == '}' || byte == ']') {
      --depth;
    }
  }
}

int64_t count_records(const std::filesystem::path& path) {
  int64_t rows = 0;
  for (RecordReader reader(path); reader.next();) ++rows;
  return rows;
}

Row parse_object(const Record& record) {
  require_shallow(record.text, record.place);
  Row row;
  try {
    row = Row::parse(record.text);
  } catch (const Row::parse_error& error) {
    const size_t at = std::min(error.byte, record.text.size());
    fail({.place = record.place,
          .found = fmt::format("text that is not JSON at column {}: `{}`", error.byte,
                               record.text.substr(at > 20 ? at - 20 : 0, std::min<size_t>(at, 20))),
          .expected = "one JSON object",
          .action = "check that the download is complete"});
  } catch (const Row::out_of_range& error) {  // 1e999
    fail({.place = record.place, .found = error.what(), .expected = "numbers that a double can hold"});
  }
  if (!row.is_object()) {
    fail({.place = record.place, .found = fmt::format("JSON {}", row.type_name()), .expected = "one JSON object"});
  }
  return row;
}

const Row& any_field(const Row& row, const char* field, const std::string& place) {
  const auto found = row.find(field);
  if (found == row.end()) {
    std::vector<std::string> names;
    for (const auto& item : row.items()) names.push_back(item.key());
    fail({.place = place,
          .found = fmt::format("a row without \"{}\"", field),
          .expected = fmt::format("the field \"{}\"", field),
          .nearest = nearest_name(field, names)});
  }
  return *found;
}

namespace {

[[noreturn]] void wrong_type(const Row& value, const char* field, const std::string& place, const char* expected) {
  fail({.place = place, .found = fmt::format("\"{}\" is a JSON {}", field, value.type_name()), .expected = expected});
}

}  // namespace

std::string string_field(const Row& row, const char* field, const std::string& place) {
  const Row& value = any_field(row, field, place);
  if (!value.is_string()) wrong_type(value, field, place, "a string");
  return value.get<std::string>();
}

int64_t integer_field(const Row& row, const char* field, const std::string& place) {
  const Row& value = any_field(row, field, place);
  if (!value.is_number_integer()) wrong_type(value, field, place, "an integer");
  return value.get<int64_t>();
}

std::vector<std::string> strings_field(const Row& row, const char* field, const std::string& place) {
  const Row& value = any_field(row, field, place);
  if (!value.is_array()) wrong_type(value, field, place, "a list of strings");
  std::vector<std::string> strings;
  for (const Row& item : value) {
    if (!item.is_string()) wrong_type(item, field, place, "a list of strings");
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

}  // namespace kvarena::datasets
