#include "harness/model/tokenizer/utf8.h"

#include <cstring>

namespace kvarena {

void append_utf8(std::string& out, uint32_t code_point) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xc0 | code_point >> 6);
    put(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    put(0xe0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3f));
    put(0x80 | (code_point & 0x3f));
  } else {
    put(0xf0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3f));
    put(0x80 | (code_point >> 6 & 0x3f));
    put(0x80 | (code_point & 0x3f));
  }
}

Utf8Step step_utf8(std::string_view text, size_t at) {
  using Kind = Utf8Step::Kind;
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return {Kind::valid, 1};
  if (lead < 0xc2 || lead > 0xf4) return {Kind::malformed, 1};
  const uint32_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The second byte's range keeps out overlong forms, surrogates and values above U+10FFFF.
  uint8_t low = 0x80;
  uint8_t high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  for (uint32_t i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {Kind::incomplete, i};
    const auto byte = static_cast<uint8_t>(text[at + i]);
    if (byte < low || byte > high) return {Kind::malformed, i};
    low = 0x80;
    high = 0xbf;
  }
  return {Kind::valid, length};
}

bool is_valid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word = 0;
    if (at + sizeof word <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const Utf8Step step = step_utf8(text, at);
    if (step.kind != Utf8Step::Kind::valid) return false;
    at += step.length;
  }
  return true;
}

std::string replace_malformed_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = step_utf8(text, at);
    out += step.kind == Utf8Step::Kind::valid ? text.substr(at, step.length) : kReplacementCharacter;
    at += step.length;
  }
  return out;
}

}  // namespace kvarena
