#include "harness/cli/top_tokens.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

namespace kvarena::cli {

nlohmann::json top_tokens(std::span<const float> logits, int64_t count, const Tokenizer& tokenizer) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto last = order.begin() + std::clamp<int64_t>(count, 0, static_cast<int64_t>(order.size()));
  std::partial_sort(order.begin(), last, order.end(),
                    [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);

  nlohmann::json list = nlohmann::json::array();
  for (auto it = order.begin(); it != last; ++it) {
    // A padded vocabulary has rows without a token.
    const std::string text = *it < tokenizer.vocab_size() ? tokenizer.token_text(*it) : "";
    list.push_back(
        {{"id", *it}, {"token", text}, {"logit", logits[*it]}, {"probability", std::exp(logits[*it] - largest) / sum}});
  }
  return list;
}

}  // namespace kvarena::cli
