#include "metrics/unicode/code_points.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace kvarena::metrics {
namespace {

struct Range {
  uint32_t first, last;
};
struct Run {
  uint32_t first, last, step;
};
struct LowerRun {
  uint32_t first, last, step;
  int32_t delta;
};

#include "metrics/unicode/tables.inc"

bool within(std::span<const Range> ranges, char32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](char32_t value, const Range& range) { return value < range.first; });
  return after != ranges.begin() && c <= std::prev(after)->last;
}

template <typename Element>
const Element* run_of(std::span<const Element> runs, char32_t c) {
  const auto after = std::upper_bound(runs.begin(), runs.end(), c,
                                      [](char32_t value, const Element& run) { return value < run.first; });
  if (after == runs.begin()) return nullptr;
  const Element& run = *std::prev(after);
  return c <= run.last && (c - run.first) % run.step == 0 ? &run : nullptr;
}

constexpr char32_t kReplacement = 0xFFFD;
constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

// Bytes that may follow a lead byte first; the rest are always 0x80..0xBF (Unicode 14, table 3-7).
struct Lead {
  int length;
  unsigned char low, high;
};

Lead classify_lead(unsigned char b) {
  if (b >= 0xC2 && b <= 0xDF) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b >= 0xE1 && b <= 0xEF) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b >= 0xF1 && b <= 0xF3) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

struct Decoded {
  char32_t code_point;
  size_t bytes;
  bool valid;
};

Decoded decode_at(std::string_view text, size_t position) {
  const auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = classify_lead(first);
  if (lead.length == 0) return {kReplacement, 1, false};
  char32_t c = first & (0xFFu >> (lead.length + 1));
  for (int i = 1; i < lead.length; ++i) {
    const auto length = static_cast<size_t>(i);
    if (position + length >= text.size()) return {kReplacement, length, false};
    const auto b = static_cast<unsigned char>(text[position + length]);
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (b < low || b > high) return {kReplacement, length, false};
    c = (c << 6) | (b & 0x3Fu);
  }
  return {c, static_cast<size_t>(lead.length), true};
}

char32_t lower_one(char32_t c) {
  if (c < 0x80) return c >= U'A' && c <= U'Z' ? c + 32 : c;
  const LowerRun* run = run_of(std::span<const LowerRun>(kLowerRuns), c);
  return run == nullptr ? c : static_cast<char32_t>(static_cast<int64_t>(c) + run->delta);
}

// Unicode 3.13, rule Final_Sigma: a cased letter before, none after, case-ignorable characters looked through.
bool sigma_is_final(std::u32string_view text, size_t at) {
  size_t i = at;
  while (i > 0 && within(kCaseIgnorable, text[i - 1])) --i;
  if (i == 0 || !within(kCased, text[i - 1])) return false;
  size_t j = at + 1;
  while (j < text.size() && within(kCaseIgnorable, text[j])) ++j;
  return j == text.size() || !within(kCased, text[j]);
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& position) {
  const Decoded decoded = decode_at(text, position);
  position += decoded.bytes;
  return decoded.code_point;
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) out.push_back(next_code_point(text, i));
  return out;
}

void append_utf8(std::string& out, char32_t c) {
  const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | ((c >> shift) & 0x3F))); };
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (c >> 6)));
    tail(0);
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (c >> 12)));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | (c >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string encode_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

bool is_valid_utf8(std::string_view text, size_t* bad_byte) {
  for (size_t i = 0; i < text.size();) {
    const Decoded decoded = decode_at(text, i);
    if (!decoded.valid) {
      if (bad_byte != nullptr) *bad_byte = i;
      return false;
    }
    i += decoded.bytes;
  }
  return true;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == U' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_decimal(char32_t c) {
  if (c < 0x80) return c >= U'0' && c <= U'9';
  return within(kDecimalDigits, c);
}

int decimal_value(char32_t c) {
  // Decimal digits come in runs of ten that start at the zero; adjoining runs (the mathematical ones) stay multiples of
  // ten.
  const std::span<const Range> ranges(kDecimalDigits);
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](char32_t value, const Range& range) { return value < range.first; });
  return static_cast<int>((c - std::prev(after)->first) % 10);
}

bool is_upper(char32_t c) { return run_of(std::span<const Run>(kUppercase), c) != nullptr; }
bool is_lower(char32_t c) { return run_of(std::span<const Run>(kLowercase), c) != nullptr; }
bool is_title(char32_t c) { return run_of(std::span<const Run>(kTitlecase), c) != nullptr; }

bool is_word(char32_t c) {
  if (c < 0x80) {
    return (c >= U'0' && c <= U'9') || (c >= U'A' && c <= U'Z') || (c >= U'a' && c <= U'z') || c == U'_';
  }
  return within(kWordCharacters, c);
}

std::string lower(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), [](char b) { return static_cast<unsigned char>(b) < 0x80; })) {
    std::string out(text);
    for (char& b : out) b = static_cast<char>(b >= 'A' && b <= 'Z' ? b + 32 : b);
    return out;
  }
  const std::u32string code_points = decode_utf8(text);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < code_points.size(); ++i) {
    const char32_t c = code_points[i];
    if (c == 0x130) {  // the one letter whose lower case is two code points
      out += "i\xCC\x87";
    } else if (c == kCapitalSigma && sigma_is_final(code_points, i)) {
      append_utf8(out, kFinalSigma);
    } else {
      append_utf8(out, lower_one(c));
    }
  }
  return out;
}

}  // namespace kvarena::metrics
