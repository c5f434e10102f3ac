#include "harness/model/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "harness/core/error.h"

namespace kvarena {
namespace {

std::string message_of(int code) {
  PCRE2_UCHAR text[160];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct TokenizerRegex::Compiled {
  std::string pattern;
  std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code{nullptr, pcre2_code_free};
};

TokenizerRegex::TokenizerRegex(const std::string& pattern, const std::string& place)
    : compiled_(std::make_unique<Compiled>()) {
  compiled_->pattern = pattern;
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
  if (!compiled_->code) {
    fail({.place = place,
          .found = fmt::format("the regular expression {} ({} at {})", pattern, message_of(error), offset),
          .expected = "one that PCRE2 understands"});
  }
  // Without just-in-time code matching is slower, not wrong.
  pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);
}

TokenizerRegex::~TokenizerRegex() = default;
TokenizerRegex::TokenizerRegex(TokenizerRegex&&) noexcept = default;
TokenizerRegex& TokenizerRegex::operator=(TokenizerRegex&&) noexcept = default;

void TokenizerRegex::each_match(std::string_view text, const std::function<void(size_t, size_t)>& visit) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
      pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr), pcre2_match_data_free);
  KVARENA_ASSERT(match != nullptr, "no memory for a match");
  for (size_t at = 0; at < text.size();) {
    const int found = pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0) {
      fail({.place = fmt::format("regular expression {}", compiled_->pattern),
            .found = fmt::format("\"{}\" at byte {} of a text", message_of(found), at),
            .expected = "a pattern that matches within PCRE2's limits"});
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    if (range[1] > range[0]) visit(range[0], range[1]);
    at = range[1];
    if (range[1] == range[0]) {  // step over one character after an empty match
      do ++at;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
    }
  }
}

}  // namespace kvarena
