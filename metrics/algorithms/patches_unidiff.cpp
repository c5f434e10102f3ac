#include <charconv>
#include <optional>

#include "metrics/algorithms/patches.h"
#include "metrics/algorithms/regex.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

struct ParseError {};  // never leaves this file

constexpr std::string_view kDevNull = "/dev/null";

struct File {
  std::string source, target;
  int64_t hunks = 0;
  [[nodiscard]] bool is_rename() const {
    const auto tail = [](const std::string& name) { return name.size() > 2 ? name.substr(2) : std::string(); };
    return source != kDevNull && target != kDevNull && tail(source) != tail(target);
  }
};

// Lines with their newline, as iterating over a text file gives them.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

int64_t integer(std::string_view digits, int64_t missing) {
  int64_t value = missing;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

class PatchSet {
 public:
  explicit PatchSet(std::string_view text) : lines_(lines_of(text)) {
    while (at_ < lines_.size()) {
      const std::string_view line = lines_[at_++];
      parse_line(line);
    }
  }

  [[nodiscard]] UnidiffReport report() const {
    UnidiffReport report{true, static_cast<int64_t>(files_.size()), 0, added_, removed_, 0};
    for (const File& file : files_) {
      report.hunks += file.hunks;
      report.renames += file.is_rename();
    }
    return report;
  }

 private:
  void parse_line(std::string_view line) {
    static const Regex kGitHeader(R"(^diff --git ((?:a/)?[^\t\n]+) ((?:b/)?[^\t\n]+))");
    static const Regex kNewFile(R"(^new file mode \d+\n\z)");
    static const Regex kDeletedFile(R"(^deleted file mode \d+\n\z)");
    static const Regex kHunkHeader(R"(^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))?\ @@[ ]?(.*))");
    if (const RegexMatch match = kGitHeader.search(line); !match.empty()) {
      open_file(std::string(match[1]), std::string(match[2]));
      has_info_ = true;
    } else if (!kNewFile.search(line).empty()) {
      file_with_info().source = kDevNull;
    } else if (!kDeletedFile.search(line).empty()) {
      file_with_info().target = kDevNull;
    } else if (line.starts_with("--- ") && !name_in(line).empty()) {
      source_ = name_in(line);
      if (current_ && file().source != *source_) current_.reset();
    } else if (line.starts_with("+++ ") && !name_in(line).empty()) {
      target_line(name_in(line));
    } else if (const RegexMatch hunk = kHunkHeader.search(line); !hunk.empty()) {
      has_info_ = false;
      if (!current_) throw ParseError{};
      parse_hunk(hunk);
    } else if (line.starts_with("\\ No newline at end of file")) {
      require_hunk();
    } else if (line == "\n" && current_) {
      require_hunk();
    } else {
      info_line(line);
    }
  }

  static std::string name_in(std::string_view header) {
    const std::string_view rest = header.substr(4);
    return std::string(rest.substr(0, rest.find_first_of("\t\n")));
  }

  File& file() { return files_[*current_]; }

  File& file_with_info() {
    if (!current_ || !has_info_) throw ParseError{};
    return file();
  }

  void open_file(std::string source, std::string target) {
    files_.push_back({std::move(source), std::move(target)});
    current_ = files_.size() - 1;
  }

  void require_hunk() {
    if (!current_ || file().hunks == 0) throw ParseError{};
  }

  void target_line(const std::string& target) {
    if (current_) {
      if (file().target != target) throw ParseError{};
      return;
    }
    if (!source_) throw ParseError{};  // the package trips over an unset variable here
    open_file(*source_, target);
    has_info_ = false;
  }

  void info_line(std::string_view line) {
    static const Regex kBinary(
        R"(^Binary files? ([^\t]+?)(?:\t([\s0-9:\+-]+))?(?: and ([^\t]+?)(?:\t([\s0-9:\+-]+))?)? (differ|has changed))");
    if (!has_info_) current_.reset();
    has_info_ = true;
    const RegexMatch binary = kBinary.search(line);
    if (binary.empty()) return;
    if (!current_) open_file(std::string(binary[1]), std::string(binary[3]));
    current_.reset();
    has_info_ = false;
  }

  void parse_hunk(const RegexMatch& header) {
    int64_t source = integer(header[1], 0);
    int64_t target = integer(header[3], 0);
    const int64_t source_end = source + integer(header[2], 1);
    const int64_t target_end = target + integer(header[4], 1);
    while (at_ < lines_.size()) {
      const std::string_view line = lines_[at_++];
      const bool context = line[0] == ' ' || line[0] == '\n' || line[0] == '\r';
      if (!context && line[0] != '+' && line[0] != '-' && line[0] != '\\') throw ParseError{};
      added_ += line[0] == '+';
      removed_ += line[0] == '-';
      source += context || line[0] == '-';
      target += context || line[0] == '+';
      if (source > source_end || target > target_end) throw ParseError{};
      if (source == source_end && target == target_end) break;
    }
    if (source < source_end || target < target_end) throw ParseError{};
    ++file().hunks;
  }

  std::vector<std::string_view> lines_;
  size_t at_ = 0;
  std::vector<File> files_;
  std::optional<size_t> current_;      // index into files_
  std::optional<std::string> source_;  // of the last "--- " line
  bool has_info_ = false;              // between a header and the first hunk
  int64_t added_ = 0;
  int64_t removed_ = 0;
};

}  // namespace

UnidiffReport parse_unidiff(std::string_view text) {
  try {
    return PatchSet(text).report();
  } catch (const ParseError&) {
    return {};
  }
}

}  // namespace kvarena::metrics
