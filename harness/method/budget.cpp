#include "harness/method/budget.h"

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"

namespace kvarena {

void Budget::parameters(ParameterVisitor& p) {
  p("keep", keep).above(0).max(1).doc("budget as the fraction of the prompt's entries that each head keeps");
  p("tokens", tokens).min(1).doc("budget as the number of entries that each head keeps");
  p("bytes", bytes).min(1).doc("budget as bytes of the whole cache, positions of kept entries included");
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
    const int64_t entry = layers * (shape.entry_bytes() + kPositionBytes * shape.kv_heads);
    return static_cast<double>(*bytes) / static_cast<double>(entry);
  }
  return *keep * static_cast<double>(prompt_tokens);
}

int64_t Budget::capacity(int64_t prompt_tokens, const LayerShape& shape, int64_t layers) const {
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(share(prompt_tokens, shape, layers) + 1e-9)));
}

}  // namespace kvarena
