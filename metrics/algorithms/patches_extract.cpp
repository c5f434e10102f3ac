#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "metrics/algorithms/patches.h"
#include "metrics/algorithms/regex.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

int64_t integer(std::string_view digits) {
  int64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

bool is_changed(const std::string& line) { return line.starts_with('-') || line.starts_with('+'); }

// A hunk's lines from the first changed one to one beyond the last, and how far the start moved.
struct StrippedHunk {
  std::vector<std::string> lines;
  int64_t start_shift = 0;
};

StrippedHunk strip_context(std::string_view body) {
  const auto lines = split_on(body, "\n");
  const auto first = std::find_if(lines.begin(), lines.end(), is_changed);
  const auto last = std::find_if(lines.rbegin(), lines.rend(), is_changed).base();  // one past the last changed line
  StrippedHunk hunk;
  hunk.start_shift = first - lines.begin() - 1;
  if (first == lines.end()) return hunk;
  const auto end = last == lines.end() ? last : last + 1;
  for (auto line = first; line != end; ++line) hunk.lines.emplace_back(rstrip(*line));
  return hunk;
}

// Lines of a hunk's text by their first character; the text's outer newlines do not count.
struct LineCounts {
  int64_t added = 0, removed = 0, context = 0;
};

LineCounts count_lines(const std::vector<std::string>& hunk) {
  LineCounts counts;
  for (const std::string& line : split_on(strip_any(fmt::format("{}", fmt::join(hunk, "\n")), "\n"), "\n")) {
    ++(line.starts_with('-') ? counts.removed : line.starts_with('+') ? counts.added : counts.context);
  }
  return counts;
}

std::string minimal_file_patch(std::string_view patch) {
  static const Regex kFileHeader(R"(\-\-\-\s+a\/(?:.+)\n\+\+\+\s+b\/(?:.+))");
  static const Regex kHunk(R"(\@\@\s+\-(\d+),(\d+)\s+\+(\d+),(\d+)\s+\@\@(.+?)(?=diff\ |\-\-\-\ a\/|\@\@\ \-|\z))",
                           Regex::Dot::matches_all);
  const RegexMatch header = kFileHeader.search(patch);
  if (header.empty()) return {};
  std::string out = fmt::format("{}\n", header[0]);
  int64_t delta = 0;  // lines the hunks so far have added
  for (const RegexMatch& match : kHunk.find_all(patch)) {
    const StrippedHunk hunk = strip_context(match[5]);
    const LineCounts counts = count_lines(hunk.lines);
    const int64_t start = integer(match[1]) + hunk.start_shift;
    const int64_t old_lines = counts.context + counts.removed;
    const int64_t new_lines = counts.context + counts.added;
    out += fmt::format("@@ -{},{} +{},{} @@\n{}\n", start, old_lines, start + delta, new_lines,
                       fmt::join(hunk.lines, "\n"));
    delta += new_lines - old_lines;
  }
  return out;
}

}  // namespace

std::string extract_diff(std::string_view response) {
  static const Regex kElement(R"(\<([\w-]+)\>(.*?)\<\/\1\>)", Regex::Dot::matches_all);
  static const Regex kBlock("```(\\w+)?\\n(.*?)```", Regex::Dot::matches_all);
  std::vector<std::string_view> others;
  for (const Regex* pattern : {&kElement, &kBlock}) {
    for (const RegexMatch& match : pattern->find_all(response)) {
      if (match[1] == "diff" || match[1] == "patch") return std::string(match[2]);
      others.push_back(match[2]);
    }
  }
  return std::string(others.empty() ? response.substr(0, response.find("</s>")) : others.front());
}

std::string extract_minimal_patch(std::string_view patch) {
  static const Regex kFilePatch(
      R"((?:diff[\w\_\.\ \/\-]+\n)?\-\-\-\s+a\/(?:.*?)\n\+\+\+\s+b\/(?:.*?)(?=diff\ |\-\-\-\ a\/|\z))",
      Regex::Dot::matches_all);
  std::string out;
  for (const RegexMatch& match : kFilePatch.find_all(lstrip_any(patch, "\n"))) out += minimal_file_patch(match[0]);
  return out;
}

}  // namespace kvarena::metrics
