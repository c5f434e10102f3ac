#include "harness/method/budget.h"

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"

namespace kvarena {

void Budget::parameters(ParameterVisitor& p) {
  p("keep", keep).above(0).max(1).doc("budget as the fraction of the prompt's entries that each head keeps");
  p("tokens", tokens).min(1).doc("budget as the number of entries that each head keeps");
  p("bytes", bytes).min(1).doc("budget as bytes of all layers acted on, positions of kept entries included");
}

void Budget::check(const std::string& place, std::vector<std::string>& problems) const {
  const int given = keep.has_value() + tokens.has_value() + bytes.has_value();
  if (given == 1) return;
  problems.push_back(
      describe({.place = place,
                .found = given == 0 ? "no budget" : "several budgets",
                .expected = "exactly one of keep, tokens, bytes",
                .action = "for a quarter of the prompt write \"keep\": 0.25, on a command line NAME:keep=0.25, "
                          "inside another method (NAME:keep=0.25)"}));
}

double Budget::share(int64_t prompt_tokens, const LayerShape& shape, int64_t layers) const {
  if (tokens) return static_cast<double>(*tokens);
  constexpr int64_t kPositionBytes = sizeof(int32_t);
  if (bytes) {
    const int64_t heads = layers * shape.kv_heads;
    const int64_t entry = shape.entry_bytes() / shape.kv_heads + kPositionBytes;  // of one head
    return static_cast<double>(*bytes / entry) / static_cast<double>(heads);
  }
  return *keep * static_cast<double>(prompt_tokens);
}

int64_t Budget::capacity(int64_t prompt_tokens, const LayerShape& shape, int64_t layers) const {
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(share(prompt_tokens, shape, layers) + 1e-9)));
}

void UserProtection::parameters(ParameterVisitor& p) {
  p("protect_sinks", sinks).min(0).doc("first entries that count as chosen, if the method protects fewer");
  p("protect_window", window).min(0).doc("newest entries that count as chosen, if the method protects fewer");
}

Protection UserProtection::beside(Protection own) const {
  return {.sinks = std::max(own.sinks, sinks), .recent = std::max(own.recent, window)};
}

}  // namespace kvarena
