#include "harness/model/tokenizer/replace.h"

#include <fmt/format.h>

#include <utility>

#include "harness/core/error.h"

namespace kvarena {

void TextBounds::check(const std::string& text) const {
  if (text.size() <= bytes) return;
  fail({.place = fmt::format("tokenizer.json: {}", component),
        .found = fmt::format("replacements that make a text longer than {} bytes", bytes),
        .expected = "some that keep its length in bounds"});
}

void replace_all(std::string& text, std::string_view from, std::string_view to, const TextBounds& bounds) {
  size_t at = from.empty() ? std::string::npos : text.find(from);
  if (at == std::string::npos) return;
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  size_t done = 0;
  for (; at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done);
    out += to;
    done = at + from.size();
    bounds.check(out);
  }
  out.append(text, done, std::string::npos);
  text = std::move(out);
}

}  // namespace kvarena
