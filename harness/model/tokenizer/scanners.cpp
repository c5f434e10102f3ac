#include "harness/model/tokenizer/scanners.h"

#include "harness/model/tokenizer/unicode.h"
#include "harness/model/tokenizer/utf8.h"

namespace kvarena {

const std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kDeepSeekDigitsPattern = R"(\p{N}{1,3})";
const std::string_view kDeepSeekHanPattern = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
const std::string_view kDeepSeekWordsPattern =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
const std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

using unicode::kLetter;
using unicode::kMark;
using unicode::kNewline;
using unicode::kNumber;
using unicode::kPunctuation;
using unicode::kSpace;
using unicode::kSymbol;

struct Step {
  uint8_t classes;  // 0 at the end of the text
  uint32_t length;  // 0 at the end of the text
};

/// The character at `at`. No character has classes 0 except a separator that is not white space, of which there is
/// none, so that 0 also says "end".
inline Step look(std::string_view text, size_t at) {
  if (at >= text.size()) return {0, 0};
  const auto byte = static_cast<uint8_t>(text[at]);
  if (byte < 0x80) return {unicode::detail::kTable.of[byte], 1};
  const CodePoint c = code_point_at(text, at);
  return {unicode::classes(c.value), c.length};
}

/// The end of the run of characters at `at` that have a class in `wanted`.
inline size_t run(std::string_view text, size_t at, uint8_t wanted) {
  for (Step step = look(text, at); (step.classes & wanted) != 0; step = look(text, at)) at += step.length;
  return at;
}

/// The end of the run that has no class in `unwanted`.
inline size_t run_without(std::string_view text, size_t at, uint8_t unwanted) {
  for (Step step = look(text, at); step.length != 0 && (step.classes & unwanted) == 0; step = look(text, at)) {
    at += step.length;
  }
  return at;
}

inline bool is_at(std::string_view text, size_t at, char wanted) { return at < text.size() && text[at] == wanted; }

/// 's|'t|'re|'ve|'m|'ll|'d behind the apostrophe at `at`; 0 when there is none. Upper case too if `any_case`, and then
/// also U+017F, which folds to s.
inline size_t contraction(std::string_view text, size_t at, bool any_case) {
  const auto letter = [&](size_t i) -> char {
    if (i >= text.size()) return 0;
    const char c = text[i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  switch (letter(at + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return letter(at + 2) == 'e' ? 3 : 0;
    case 'l': return letter(at + 2) == 'l' ? 3 : 0;
    default: return any_case && text.substr(at + 1, 2) == "\xC5\xBF" ? 3 : 0;
  }
}

/// \s+(?!\S)|\s+ on the run of white space at `at`: all of it at the end of the text or when it is one character,
/// otherwise all but the last, which the next piece may begin with.
inline size_t white_space(std::string_view text, size_t at) {
  size_t last = at;
  size_t end = at;
  for (Step step = look(text, end); (step.classes & kSpace) != 0; step = look(text, end)) {
    last = end;
    end += step.length;
  }
  return end == text.size() || last == at ? end : last;
}

/// \s*[\r\n]+|\s+(?!\S)|\s+: to the last line break of the run of white space if it has one.
inline size_t white_space_to_newline(std::string_view text, size_t at) {
  size_t last = at;
  size_t end = at;
  size_t after_newline = 0;
  for (Step step = look(text, end); (step.classes & kSpace) != 0; step = look(text, end)) {
    last = end;
    end += step.length;
    if ((step.classes & kNewline) != 0) after_newline = end;
  }
  if (after_newline != 0) return after_newline;
  return end == text.size() || last == at ? end : last;
}

struct Gpt2 {
  static size_t next(std::string_view text, size_t at) {
    const Step first = look(text, at);
    if (text[at] == '\'') {
      if (const size_t length = contraction(text, at, false); length != 0) return at + length;
    }
    // " ?" takes a space when something else than white space follows.
    size_t begin = at;
    Step step = first;
    if (text[at] == ' ') {
      step = look(text, at + 1);
      begin = at + 1;
      if (step.length == 0 || (step.classes & kSpace) != 0) return white_space(text, at);
    }
    begin += step.length;
    if ((step.classes & kLetter) != 0) return run(text, begin, kLetter);
    if ((step.classes & kNumber) != 0) return run(text, begin, kNumber);
    if ((step.classes & kSpace) == 0) return run_without(text, begin, kSpace | kLetter | kNumber);
    return white_space(text, at);
  }
};

template <int kMaxDigits>
struct Llama3 {
  static size_t next(std::string_view text, size_t at) {
    const Step first = look(text, at);
    const size_t second = at + first.length;
    if ((first.classes & kLetter) != 0) return run(text, second, kLetter);
    if (text[at] == '\'') {
      if (const size_t length = contraction(text, at, true); length != 0) return at + length;
    }
    if ((first.classes & kNumber) != 0) {
      size_t end = second;
      for (int digits = 1; digits < kMaxDigits; ++digits) {
        const Step step = look(text, end);
        if ((step.classes & kNumber) == 0) break;
        end += step.length;
      }
      return end;
    }
    const Step after = look(text, second);
    if ((first.classes & kNewline) == 0 && (after.classes & kLetter) != 0) {
      return run(text, second + after.length, kLetter);
    }
    const bool other = (first.classes & kSpace) == 0;
    const bool space_before_other =
        text[at] == ' ' && after.length != 0 && (after.classes & (kSpace | kLetter | kNumber)) == 0;
    if (other || space_before_other) {
      return run(text, run_without(text, second, kSpace | kLetter | kNumber), kNewline);
    }
    return white_space_to_newline(text, at);
  }
};

/// Matches alone, and each run without a match as one piece. kMatch::end(text, at) is the end of a match, or `at`.
template <class kMatch>
struct WithGaps {
  static size_t next(std::string_view text, size_t at) {
    if (const size_t end = kMatch::end(text, at); end != at) return end;
    do at += look(text, at).length;
    while (at < text.size() && kMatch::end(text, at) == at);
    return at;
  }
};

template <int kMax>
struct UpToDigits {
  static size_t end(std::string_view text, size_t at) {
    for (int digits = 0; digits < kMax; ++digits) {
      const Step step = look(text, at);
      if ((step.classes & kNumber) == 0) break;
      at += step.length;
    }
    return at;
  }
};

struct DigitRuns {
  static size_t end(std::string_view text, size_t at) { return run(text, at, kNumber); }
};

struct HanAndKana {
  static size_t end(std::string_view text, size_t at) {
    while (at < text.size() && static_cast<uint8_t>(text[at]) >= 0xe3) {  // U+3000 and above
      const CodePoint c = code_point_at(text, at);
      const bool wanted = (c.value >= 0x4e00 && c.value <= 0x9fa5) || (c.value >= 0x3040 && c.value <= 0x30ff);
      if (!wanted) break;
      at += c.length;
    }
    return at;
  }
};

struct DeepSeekWords {
  static size_t end(std::string_view text, size_t at) {
    const Step first = look(text, at);
    const size_t second = at + first.length;
    const auto is_ascii_letter = [&](size_t i) {
      return i < text.size() && ((text[i] | 32) >= 'a' && (text[i] | 32) <= 'z');
    };
    const bool ascii_sign = first.length == 1 && (first.classes & (kPunctuation | kSymbol)) != 0;
    if (ascii_sign && is_ascii_letter(second)) {
      size_t end = second;
      while (is_ascii_letter(end)) ++end;
      return end;
    }
    if ((first.classes & (kLetter | kMark)) != 0) return run(text, second, kLetter | kMark);
    const Step after = look(text, second);
    if ((first.classes & (kNewline | kPunctuation | kSymbol)) == 0 && (after.classes & (kLetter | kMark)) != 0) {
      return run(text, second + after.length, kLetter | kMark);
    }
    const bool space_before_sign = text[at] == ' ' && (after.classes & (kPunctuation | kSymbol)) != 0;
    if ((first.classes & (kPunctuation | kSymbol)) != 0 || space_before_sign) {
      return run(text, run(text, second, kPunctuation | kSymbol), kNewline);
    }
    if ((first.classes & kSpace) != 0) return white_space_to_newline(text, at);
    return at;
  }
};

template <class Scanner>
class ScannerStep final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    pieces.spare.clear();
    for (const Piece piece : pieces.list) {
      const std::string_view text = pieces[piece];
      for (size_t at = 0; at < text.size();) {
        const size_t end = Scanner::next(text, at);
        pieces.spare.push_back({piece.begin + static_cast<uint32_t>(at), piece.begin + static_cast<uint32_t>(end)});
        at = end;
      }
    }
    pieces.list.swap(pieces.spare);
  }
};

}  // namespace

PreTokenizerPtr make_scanner(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return std::make_unique<ScannerStep<Gpt2>>();
  if (pattern == kLlama3Pattern) return std::make_unique<ScannerStep<Llama3<3>>>();
  if (pattern == kQwenPattern) return std::make_unique<ScannerStep<Llama3<1>>>();
  if (pattern == kDeepSeekDigitsPattern) return std::make_unique<ScannerStep<WithGaps<UpToDigits<3>>>>();
  if (pattern == kDeepSeekHanPattern) return std::make_unique<ScannerStep<WithGaps<HanAndKana>>>();
  if (pattern == kDeepSeekWordsPattern) return std::make_unique<ScannerStep<WithGaps<DeepSeekWords>>>();
  return nullptr;
}

PreTokenizerPtr make_digits(bool individual) {
  if (individual) return std::make_unique<ScannerStep<WithGaps<UpToDigits<1>>>>();
  return std::make_unique<ScannerStep<WithGaps<DigitRuns>>>();
}

}  // namespace kvarena
