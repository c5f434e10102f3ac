#include "harness/cli/method_spec.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "harness/core/error.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

/// Recursive descent over the short form. Nothing is skipped between words but blanks.
class ShortForm {
 public:
  ShortForm(std::string_view text, const std::string& place) : text_(text), place_(place) {}

  json whole() {
    json spec = method();
    if (at_ < text_.size()) stop("\",\" or the end");
    return spec;
  }

 private:
  // method := name [":" key "=" value {"," key "=" value}]
  json method() {
    json spec{{"name", word("a method's name")}};
    if (!take(':')) return spec;
    do {
      const size_t start = at_;
      const std::string key = word("a setting's name");
      if (spec.contains(key)) {
        at_ = start;
        stop("each setting once");
      }
      if (!take('=')) stop("\"=\" and a value");
      spec[key] = value();
    } while (take(','));
    return spec;
  }

  json value() {
    const size_t start = at_;
    const bool parenthesis = take('(');
    if (!parenthesis && !take('[')) return quoted_or_scalar();
    if (++depth_ > kDeepest) {
      at_ = start;
      stop(fmt::format("at most {} levels of nesting", kDeepest));
    }
    json nested = parenthesis ? method() : list();
    if (!take(parenthesis ? ')' : ']')) stop(parenthesis ? "\")\"" : "\",\" or \"]\"");
    --depth_;
    return nested;
  }

  json quoted_or_scalar() {
    if (at_ < text_.size() && text_[at_] == '"') return quoted();
    return scalar(word("a value"));
  }

  json list() {
    json items = json::array();
    if (at_ < text_.size() && text_[at_] == ']') return items;
    do {
      items.push_back(value());
    } while (take(','));
    return items;
  }

  json quoted() {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) stop("a closing quote");
    json parsed = json::parse(text_.substr(at_, end + 1 - at_), nullptr, false);
    if (parsed.is_discarded()) stop("a string with JSON's escapes");
    at_ = end + 1;
    blanks();
    return parsed;
  }

  static json scalar(const std::string& word) {
    if (word == "true" || word == "false") return word == "true";
    if (word == "null") return nullptr;
    const char* end = word.data() + word.size();
    int64_t integer = 0;
    if (const auto read = std::from_chars(word.data(), end, integer); read.ec == std::errc{} && read.ptr == end) {
      return integer;
    }
    double number = 0;
    const bool numeric = word.find_first_not_of("+-.0123456789eE") == std::string::npos;  // no "inf", no "nan"
    if (const auto read = std::from_chars(word.data(), end, number);
        numeric && read.ec == std::errc{} && read.ptr == end) {
      return number;
    }
    return word;
  }

  /// Characters up to one that means something, without blanks around them.
  std::string word(const char* expected) {
    blanks();
    const size_t start = at_;
    at_ = std::min(text_.find_first_of(":=,()[]\"{}", at_), text_.size());
    std::string_view found = text_.substr(start, at_ - start);
    found = found.substr(0, found.find_last_not_of(' ') + 1);
    if (found.empty()) stop(expected);
    return std::string(found);
  }

  bool take(char c) {
    blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    blanks();
    return true;
  }

  void blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  [[noreturn]] void stop(const std::string& expected) const {
    fail({.place = fmt::format("{}: character {} of \"{}\"", place_, at_ + 1, text_),
          .found = at_ < text_.size() ? fmt::format("\"{}\"", text_.substr(at_)) : "the end",
          .expected = expected,
          .action = "write NAME:key=value,key=value or JSON"});
  }

  static constexpr int kDeepest = 32;

  std::string_view text_;
  const std::string& place_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

json parse_method_spec(const std::string& text, const std::string& place) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos || text[first] != '{') return ShortForm(text, place).whole();
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    fail({.place = fmt::format("{}: byte {} of the method's JSON", place, error.byte),
          .found = fmt::format("'{}'", text),
          .expected = "a JSON object such as {\"name\": ...}",
          .action = "in a shell, put it between single quotes"});
  }
}

}  // namespace kvarena::cli
