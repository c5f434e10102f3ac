#pragma once
// Log-probabilities of tokens, and the likeliest tokens beside them.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace kvarena::serve {

struct TokenScore {
  double log_probability = 0;                         // in nats
  std::vector<std::pair<int32_t, double>> likeliest;  // tokens by falling log-probability, ties to the lower id
};

/// Scores `token` by the logits [vocab_size] that it was chosen by, with the `count` likeliest.
[[nodiscard]] TokenScore score_token(std::span<const float> logits, int32_t token, int64_t count);

/// Scores tokens that become known after their logits.
class PendingScores {
 public:
  explicit PendingScores(int64_t likeliest) : likeliest_(likeliest) {}

  /// Keeps the logits of the next token.
  void add(std::span<const float> logits) { rows_.emplace_back(logits.begin(), logits.end()); }
  /// The next tokens are these: scores of as many rows, which go.
  [[nodiscard]] std::vector<TokenScore> take(std::span<const int32_t> tokens);

 private:
  int64_t likeliest_;
  std::vector<std::vector<float>> rows_;
};

}  // namespace kvarena::serve
