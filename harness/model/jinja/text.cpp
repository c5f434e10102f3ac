#include "harness/model/jinja/text.h"

#include <algorithm>

#include "harness/model/tokenizer/unicode.h"
#include "harness/model/tokenizer/utf8.h"

namespace kvarena::jinja {
namespace {

bool is_space(std::string_view character) {
  const uint32_t value = code_point_at(character, 0).value;
  return (unicode::classes(value) & unicode::kSpace) != 0 || (value >= 0x1c && value <= 0x1f);
}

char to_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_letter(char c) { return to_upper(c) != to_lower(c); }

std::vector<std::string> split_at_spaces(std::string_view text, int64_t most) {
  std::vector<std::string> words;
  while (true) {
    text = strip(text, "", Side::left);
    if (text.empty()) return words;
    if (most >= 0 && std::ssize(words) == most) {
      words.emplace_back(strip(text, "", Side::right));
      return words;
    }
    std::string word;
    for (const std::string& character : characters_of(text)) {
      if (is_space(character)) break;
      word += character;
    }
    text.remove_prefix(word.size());
    words.push_back(std::move(word));
  }
}

}  // namespace

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> characters;
  for (size_t at = 0; at < text.size();) {
    const uint32_t length = step_utf8(text, at).length;
    characters.emplace_back(text.substr(at, length));
    at += length;
  }
  return characters;
}

std::string_view strip(std::string_view text, std::string_view what, Side side) {
  const std::vector<std::string> characters = characters_of(text);
  const std::vector<std::string> taken = characters_of(what);
  const auto goes = [&](const std::string& character) {
    if (!what.empty()) return std::ranges::find(taken, character) != taken.end();
    return step_utf8(character, 0).kind == Utf8Step::Kind::valid && is_space(character);
  };
  size_t begin = 0, end = characters.size();
  if (side != Side::right) {
    for (; begin < end && goes(characters[begin]); ++begin) text.remove_prefix(characters[begin].size());
  }
  if (side != Side::left) {
    for (; begin < end && goes(characters[end - 1]); --end) text.remove_suffix(characters[end - 1].size());
  }
  return text;
}

std::vector<std::string> split(std::string_view text, std::string_view separator, int64_t most, bool from_right) {
  if (separator.empty()) return split_at_spaces(text, most);
  std::vector<std::string> parts;
  while (most < 0 || std::ssize(parts) < most) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    parts.emplace_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  parts.emplace_back(text);
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to, int64_t most) {
  if (from.empty()) return std::string(text);
  std::string out;
  for (int64_t done = 0; most < 0 || done < most; ++done) {
    const size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

std::string upper(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), to_upper);
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), to_lower);
  return out;
}

std::string capitalised(std::string_view text, bool each_word) {
  std::string out = lower(text);
  bool begins = true;
  for (char& c : out) {
    if (begins) c = to_upper(c);
    begins = each_word && !is_letter(c);
  }
  return out;
}

}  // namespace kvarena::jinja
