#include "harness/cli/top_tokens.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/model/likeliest.h"

namespace kvarena::cli {

nlohmann::json top_tokens(std::span<const float> logits, int64_t count, const Tokenizer& tokenizer) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);

  nlohmann::json list = nlohmann::json::array();
  for (const int32_t id : likeliest(logits, count)) {
    // A padded vocabulary has rows without a token.
    const std::string text = id < tokenizer.vocab_size() ? tokenizer.token_text(id) : "";
    list.push_back(
        {{"id", id}, {"token", text}, {"logit", logits[id]}, {"probability", std::exp(logits[id] - largest) / sum}});
  }
  return list;
}

}  // namespace kvarena::cli
