#include "datasets/python_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace kvarena::datasets {

std::string python_text(const Row& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  if (!value.is_array()) return value.dump();
  std::vector<std::string> parts;
  for (const Row& item : value) {
    std::string text = python_text(item);
    const char* quote = text.find('\'') == std::string::npos ? "'" : "\"";
    parts.push_back(item.is_string() ? quote + text + quote : std::move(text));
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string python_json(const Row& value) {
  const auto dumped = [](const Row& part) { return part.dump(-1, ' ', /*ensure_ascii=*/true); };
  if (!value.is_structured()) return dumped(value);
  std::vector<std::string> parts;
  for (const auto& item : value.items()) {
    parts.push_back(value.is_array() ? python_json(item.value())
                                     : fmt::format("{}: {}", dumped(item.key()), python_json(item.value())));
  }
  return fmt::format(fmt::runtime(value.is_array() ? "[{}]" : "{{{}}}"), fmt::join(parts, ", "));
}

std::string_view python_strip(std::string_view text) {
  constexpr std::string_view kWhite[] = {" ",      "\t",     "\n",     "\r",     "\f",     "\v",     "\x1c",   "\x1d",
                                         "\x1e",   "\x1f",   "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002",
                                         "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
                                         "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
  for (size_t before = text.size() + 1; text.size() < before;) {
    before = text.size();
    for (const std::string_view white : kWhite) {
      if (text.starts_with(white)) text.remove_prefix(white.size());
      if (text.ends_with(white)) text.remove_suffix(white.size());
    }
  }
  return text;
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace kvarena::datasets
