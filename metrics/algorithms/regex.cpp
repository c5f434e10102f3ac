#include "metrics/algorithms/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "harness/core/error.h"

namespace kvarena::metrics {
namespace {

const pcre2_code* code_of(const std::shared_ptr<const void>& code) {
  return static_cast<const pcre2_code*>(code.get());
}

}  // namespace

Regex::Regex(const std::string& pattern, Dot dot) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | (dot == Dot::matches_all ? PCRE2_DOTALL : 0);
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &offset, nullptr);
  KVARENA_ASSERT(code != nullptr, fmt::format("pattern {} error {} at {}", pattern, error, offset));
  code_ = std::shared_ptr<const void>(
      code, [](const void* c) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(c))); });
}

RegexMatch Regex::match_at(std::string_view text, size_t start, uint32_t options) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code_of(code_), nullptr), pcre2_match_data_free);
  const int count = pcre2_match(code_of(code_), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start, options,
                                data.get(), nullptr);
  if (count < 0) return {};
  const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(data.get());
  RegexMatch match;
  for (uint32_t g = 0; g < pcre2_get_ovector_count(data.get()); ++g) {
    const bool took_part = static_cast<int>(g) < count && ovector[2 * g] != PCRE2_UNSET;
    match.push_back(took_part ? text.substr(ovector[2 * g], ovector[2 * g + 1] - ovector[2 * g]) : std::string_view{});
  }
  return match;
}

RegexMatch Regex::search(std::string_view text) const { return match_at(text, 0, 0); }

std::vector<RegexMatch> Regex::find_all(std::string_view text) const {
  std::vector<RegexMatch> matches;
  size_t at = 0;
  uint32_t options = 0;
  while (at <= text.size()) {
    RegexMatch match = match_at(text, at, options | (matches.empty() ? 0 : PCRE2_NO_UTF_CHECK));
    if (match.empty()) {
      if (options == 0) break;
      options = 0;  // nothing that advances from here: try from the next character
      ++at;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
      continue;
    }
    at = static_cast<size_t>(match[0].data() - text.data()) + match[0].size();
    options = match[0].empty() ? PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED : 0;
    matches.push_back(std::move(match));
  }
  return matches;
}

std::string Regex::sub(std::string_view text, const std::function<std::string(const RegexMatch&)>& replacement) const {
  std::string out;
  size_t from = 0;
  for (const RegexMatch& match : find_all(text)) {
    const auto at = static_cast<size_t>(match[0].data() - text.data());
    out.append(text.substr(from, at - from));
    out += replacement(match);
    from = at + match[0].size();
  }
  return out.append(text.substr(from));
}

}  // namespace kvarena::metrics
