#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "metrics/algorithms/patches.h"

namespace kvarena::metrics {
namespace {

struct Corrupt {};  // git's fatal errors; never leaves this file

struct Patch {
  std::optional<std::string> default_name, old_name, new_name;
  bool is_new = false, is_delete = false, is_rename = false, is_copy = false, is_binary = false;
  int64_t added = 0, deleted = 0;
};

std::string_view first_line_of(std::string_view text) {
  const size_t end = text.find('\n');
  return end == std::string_view::npos ? text : text.substr(0, end + 1);
}

bool ends_line(std::string_view line) { return line.ends_with('\n'); }

bool is_dev_null(std::string_view name) {
  return name.size() > 9 && name.starts_with("/dev/null") && (name[9] == ' ' || (name[9] >= '\t' && name[9] <= '\r'));
}

std::string squash_slashes(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '/' || !out.ends_with('/')) out.push_back(c);
  }
  return out;
}

// A name in C quotes, and where it ends; nothing when the quotes do not close.
std::optional<std::string> unquoted(std::string_view text, size_t* end = nullptr) {
  static constexpr std::string_view kLetters = "abfnrtv\\\"";
  static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\\"";
  std::string out;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      if (end != nullptr) *end = i + 1;
      return out;
    }
    if (text[i] != '\\') {
      out.push_back(text[i]);
      continue;
    }
    if (++i >= text.size()) break;
    const size_t known = kLetters.find(text[i]);
    if (known != std::string_view::npos) {
      out.push_back(kMeanings[known]);
    } else if (text[i] >= '0' && text[i] <= '3' && i + 2 < text.size()) {
      out.push_back(static_cast<char>((text[i] - '0') * 64 + (text[i + 1] - '0') * 8 + (text[i + 2] - '0')));
      i += 2;
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// The text after `components` slashes; nothing when there are fewer.
std::optional<std::string_view> without_components(std::string_view name, int components) {
  for (; components > 0; --components) {
    const size_t slash = name.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    name.remove_prefix(slash + 1);
  }
  return name;
}

// find_name: up to a space character that is no blank (nor, unless it stops there, a tab), leading components dropped.
std::optional<std::string> find_name(std::string_view line, int components, bool stops_at_tab,
                                     const std::optional<std::string>& fallback = std::nullopt) {
  std::optional<std::string> quoted;
  if (line.starts_with('"')) quoted = unquoted(line);
  const std::string_view text =
      quoted ? std::string_view(*quoted) : line.substr(0, line.find_first_of(stops_at_tab ? "\t\n\v\f\r" : "\n\v\f\r"));
  const auto name = without_components(text, components);
  if (!name || name->empty()) return fallback;
  if (fallback && fallback->size() < name->size() && name->starts_with(*fallback)) return fallback;
  return squash_slashes(*name);
}

// The name that two quoted ones have in common.
std::optional<std::string> quoted_header_name(std::string_view line, int components) {
  size_t end = 0;
  const auto first = unquoted(line, &end);
  if (!first) return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(" \t\v\f\r", end), line.size()));
  const auto second = line.starts_with('"') ? unquoted(line) : std::nullopt;
  if (!second) return std::nullopt;
  const auto name = without_components(*first, components);
  return name && name == without_components(*second, components) ? std::optional(std::string(*name)) : std::nullopt;
}

// The name that stands twice, in the same form, on a "diff --git" line; nothing for a rename.
std::optional<std::string> header_name(std::string_view line, int components) {
  std::string_view rest = line.substr(11);
  if (!ends_line(rest)) return std::nullopt;
  rest.remove_suffix(1);
  if (rest.starts_with('"')) return quoted_header_name(rest, components);
  const auto name = without_components(rest, components);
  if (!name) return std::nullopt;
  for (size_t length = name->find_first_of(" \t"); length != std::string_view::npos;
       length = name->find_first_of(" \t", length + 1)) {
    const auto second = without_components(name->substr(length + 1), components);
    if (!second) return std::nullopt;
    if (*second == name->substr(0, length)) return std::string(*second);
  }
  return std::nullopt;
}

class NumstatParser {
 public:
  explicit NumstatParser(std::string_view text) : rest_(text) {}

  std::string run() {
    std::string output;
    bool any = false;
    while (auto patch = next_patch()) {
      any = true;
      const std::string& name = patch->new_name ? *patch->new_name : *patch->old_name;
      output += patch->is_binary ? "-\t-\t" : fmt::format("{}\t{}\t", patch->added, patch->deleted);
      output += quoted_path(name) + "\n";
    }
    if (!any) throw Corrupt{};
    return output;
  }

 private:
  static std::string quoted_path(const std::string& name) {
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
      const auto b = static_cast<unsigned char>(c);
      return b >= 0x20 && b < 0x7F && c != '"' && c != '\\';
    });
    if (plain) return name;
    std::string out(1, '"');
    for (const char c : name) {
      const auto b = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        out.push_back('\\');
        out.push_back(c);
      } else if (c >= '\a' && c <= '\r') {
        out.push_back('\\');
        out.push_back("abtnvfr"[c - '\a']);
      } else if (b < 0x20 || b >= 0x7F) {
        out += fmt::format("\\{:03o}", b);
      } else {
        out.push_back(c);
      }
    }
    out.push_back('"');
    return out;
  }

  std::optional<Patch> next_patch() {
    Patch patch;
    if (!find_header(patch)) return std::nullopt;
    int64_t hunks_old = 0;
    int64_t hunks_new = 0;
    bool any_hunk = false;
    while (rest_.size() > 4 && rest_.starts_with("@@ -")) {
      parse_hunk(patch, hunks_old, hunks_new);
      any_hunk = true;
    }
    if (patch.is_new && hunks_old > 0) throw Corrupt{};
    if (patch.is_delete && hunks_new > 0) throw Corrupt{};
    if (!any_hunk) skip_binary_note(patch);
    return patch;
  }

  void skip_binary_note(Patch& patch) {
    const std::string_view line = first_line_of(rest_);
    if (line.ends_with(" differ\n") && (line.starts_with("Binary files ") || line.starts_with("Files "))) {
      patch.is_binary = true;
      rest_.remove_prefix(line.size());
    }
  }

  // Moves past the header of the next patch.
  bool find_header(Patch& patch) {
    for (std::string_view line; !(line = first_line_of(rest_)).empty(); rest_.remove_prefix(line.size())) {
      if (line.size() < 6) continue;
      if (line.starts_with("@@ -")) {
        int64_t old_lines = 0;
        int64_t new_lines = 0;
        if (hunk_header(line, old_lines, new_lines)) throw Corrupt{};  // a hunk without a file
        continue;
      }
      if (rest_.size() < line.size() + 6) return false;
      if (line.starts_with("diff --git ")) {
        if (git_header(patch)) return true;
        continue;  // git keeps the names for the next header
      }
      if (line.starts_with("--- ") && traditional_header(line, patch)) return true;
    }
    return false;
  }

  bool traditional_header(std::string_view first, Patch& patch) {
    std::string_view after = rest_.substr(first.size());
    if (!after.starts_with("+++ ")) return false;
    const std::string_view second = first_line_of(after);
    after.remove_prefix(second.size());
    if (!after.starts_with("@@ -") || after.size() < 14) return false;
    const std::string_view old_line = first.substr(4);
    const std::string_view new_line = second.substr(4);
    if (!components_known_ && has_no_folder(old_line) && has_no_folder(new_line)) {
      components_ = 0;
      components_known_ = true;
    }
    if (is_dev_null(old_line)) {
      patch.is_new = true;
      patch.new_name = find_name(new_line, components_, true);
    } else if (is_dev_null(new_line)) {
      patch.is_delete = true;
      patch.old_name = find_name(old_line, components_, true);
    } else {
      patch.new_name = find_name(new_line, components_, true, find_name(old_line, components_, true));
      patch.old_name = patch.new_name;
    }
    if (!patch.old_name && !patch.new_name) throw Corrupt{};
    rest_ = after;
    return true;
  }

  static bool has_no_folder(std::string_view line) {
    const auto name = find_name(line, 0, true);
    return !is_dev_null(line) && name && name->find('/') == std::string::npos;
  }

  // False when the line is followed by nothing a header is made of.
  bool git_header(Patch& patch) {
    std::string_view after = rest_;
    const std::string_view first = first_line_of(after);
    patch.default_name = header_name(first, components_);
    patch.is_new = patch.is_delete = false;
    after.remove_prefix(first.size());
    bool more = true;
    bool any = false;
    while (more && !after.empty()) {
      const std::string_view line = first_line_of(after);
      if (!ends_line(line)) break;
      more = header_line(line, patch);
      if (more) after.remove_prefix(line.size());
      any |= more;
    }
    check_names(patch);
    if (!any) return false;
    rest_ = after;
    return true;
  }

  static void check_names(Patch& patch) {
    if (!patch.old_name && !patch.new_name) {
      if (!patch.default_name) throw Corrupt{};
      patch.old_name = patch.new_name = patch.default_name;
    }
    if ((!patch.new_name && !patch.is_delete) || (!patch.old_name && !patch.is_new)) throw Corrupt{};
  }

  // False at the first line that belongs to no header.
  bool header_line(std::string_view line, Patch& patch) const {
    const auto after = [&](std::string_view prefix) -> std::optional<std::string_view> {
      return line.starts_with(prefix) ? std::optional(line.substr(prefix.size())) : std::nullopt;
    };
    if (line.starts_with("@@ -")) return false;
    if (const auto name = after("--- ")) {
      verify_name(*name, patch.is_new, patch.old_name);
    } else if (const auto new_name = after("+++ ")) {
      verify_name(*new_name, patch.is_delete, patch.new_name);
    } else if (const auto new_mode = after("new file mode ")) {
      patch.is_new = true;
      patch.new_name = patch.default_name;
      check_mode(*new_mode);
    } else if (const auto old_mode = after("deleted file mode ")) {
      patch.is_delete = true;
      patch.old_name = patch.default_name;
      check_mode(*old_mode);
    } else if (!rename_or_copy(line, patch)) {
      if (const auto mode = after("old mode ")) return check_mode(*mode);
      if (const auto mode = after("new mode ")) return check_mode(*mode);
      if (const auto ids = after("index ")) return check_index(*ids);
      return line.starts_with("similarity index ") || line.starts_with("dissimilarity index ");
    }
    if (patch.is_new + patch.is_delete + patch.is_rename + patch.is_copy > 1) throw Corrupt{};
    return true;
  }

  bool rename_or_copy(std::string_view line, Patch& patch) const {
    struct Form {
      std::string_view prefix;
      bool source, copy;
    };
    for (const Form& form :
         {Form{"rename from ", true, false}, Form{"rename to ", false, false}, Form{"rename old ", true, false},
          Form{"rename new ", false, false}, Form{"copy from ", true, true}, Form{"copy to ", false, true}}) {
      if (!line.starts_with(form.prefix)) continue;
      (form.copy ? patch.is_copy : patch.is_rename) = true;
      (form.source ? patch.old_name : patch.new_name) =
          find_name(line.substr(form.prefix.size()), std::max(components_ - 1, 0), false);
      return true;
    }
    return false;
  }

  void verify_name(std::string_view line, bool wants_null, std::optional<std::string>& name) const {
    if (!name && !wants_null) {
      name = find_name(line, components_, true);
    } else if (name) {
      if (wants_null || find_name(line, components_, true) != name) throw Corrupt{};
    } else if (!is_dev_null(line)) {
      throw Corrupt{};
    }
  }

  static bool check_mode(std::string_view text) {
    const size_t end = text.find_first_not_of("01234567");
    if (end == 0 || end == std::string_view::npos || !std::isspace(static_cast<unsigned char>(text[end])))
      throw Corrupt{};
    return true;
  }

  // "index 123..456 100644": only the mode can be wrong.
  static bool check_index(std::string_view text) {
    const size_t dots = text.find('.');
    if (dots == std::string_view::npos || dots > 40 || text.substr(dots, 2) != "..") return true;
    const std::string_view second = text.substr(dots + 2);
    const size_t end = second.find(' ');
    if (end == std::string_view::npos || end > 40) return true;
    return check_mode(second.substr(end + 1));
  }

  static bool number(std::string_view& text, int64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || text.empty() || text[0] == '-') return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
  }

  static bool range(std::string_view& text, std::string_view closer, int64_t& lines) {
    int64_t position = 0;
    lines = 1;
    if (!number(text, position)) return false;
    if (text.starts_with(',')) {
      text.remove_prefix(1);
      if (!number(text, lines)) return false;
    }
    if (!text.starts_with(closer)) return false;
    text.remove_prefix(closer.size());
    return true;
  }

  static bool hunk_header(std::string_view line, int64_t& old_lines, int64_t& new_lines) {
    if (!ends_line(line)) return false;
    line.remove_prefix(4);
    return range(line, " +", old_lines) && range(line, " @@", new_lines);
  }

  void parse_hunk(Patch& patch, int64_t& hunks_old, int64_t& hunks_new) {
    const std::string_view header = first_line_of(rest_);
    int64_t old_left = 0;
    int64_t new_left = 0;
    if (!hunk_header(header, old_left, new_left)) throw Corrupt{};
    hunks_old += old_left;
    hunks_new += new_left;
    rest_.remove_prefix(header.size());
    int64_t added = 0;
    int64_t deleted = 0;
    while (!rest_.empty() && (old_left != 0 || new_left != 0)) {
      const std::string_view line = first_line_of(rest_);
      if (!ends_line(line)) throw Corrupt{};
      const char kind = line[0];
      const bool context = kind == ' ' || kind == '\n';
      const bool no_newline_note = kind == '\\' && line.size() >= 12 && line[1] == ' ';
      if (!context && kind != '+' && kind != '-' && !no_newline_note) throw Corrupt{};
      old_left -= context || kind == '-';
      new_left -= context || kind == '+';
      added += kind == '+';
      deleted += kind == '-';
      rest_.remove_prefix(line.size());
    }
    if (old_left != 0 || new_left != 0 || (added == 0 && deleted == 0)) throw Corrupt{};
    if (rest_.size() > 12 && rest_.starts_with("\\ ")) rest_.remove_prefix(first_line_of(rest_).size());
    patch.added += added;
    patch.deleted += deleted;
  }

  std::string_view rest_;
  int components_ = 1;             // leading path components to drop, -p
  bool components_known_ = false;  // a patch whose names have no folder settles it at 0
};

}  // namespace

NumstatReport git_numstat(std::string_view text) {
  try {
    return {0, NumstatParser(text).run()};
  } catch (const Corrupt&) {
    return {128, {}};
  }
}

}  // namespace kvarena::metrics
