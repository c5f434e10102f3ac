#pragma once
// A step's attention under a method whose entries have weights, and what its authors' code gives
// (tests/golden/weighted_retrieval.py).

#include <functional>

#include "harness/cache/attend_plan.h"
#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena::testing {

/// A prompt of n entries and one more behind it, whose queries, three times as long, make a step.
class WeightedStep {
 public:
  static constexpr LayerShape kShape = RetrievalRequest::kShape;

  WeightedStep(const nlohmann::json& spec, int64_t n, uint64_t seed, const LayerObservations& seen = {})
      : method_(make_method(spec, "test")), cache_(1, kShape) {
    constexpr int64_t kRow = RetrievalRequest::kRow;
    LayerCache& layer = cache_.layers[0];
    layer.append(random_floats(n * kRow, "keys", seed).data(), random_floats(n * kRow, "values", seed).data(), n, kRow,
                 0);
    LayerContext context = view(n);
    method_->compress_all({&context, 1}, {&seen, 1});
    layer.append(random_floats(kRow, "more keys", seed).data(), random_floats(kRow, "more values", seed).data(), 1,
                 kRow, n);
    q_ = random_floats(RetrievalRequest::kQuery, "q", seed);
    for (float& x : q_) x *= 3;
    LayerContext step = view(n);
    method_->select(step, queries(n));
    attended_ = attention(n);
  }
  /// [q_heads, head_dim].
  [[nodiscard]] const std::vector<float>& attended() const { return attended_; }
  [[nodiscard]] const Segment* view() const { return cache_.layers[0].view.get(); }
  [[nodiscard]] const LayerCache& layer() const { return cache_.layers[0]; }
  [[nodiscard]] const Method& method() const { return *method_; }

 private:
  [[nodiscard]] LayerContext view(int64_t prompt) {
    return {.layer = 0, .layers = 1, .cache = cache_.layers[0], .activity = activity_, .prompt_tokens = prompt};
  }
  [[nodiscard]] LayerQueries queries(int64_t position) const {
    return {.q = q_.data(), .q_len = 1, .q_stride = RetrievalRequest::kQuery, .position = position};
  }
  [[nodiscard]] std::vector<float> attention(int64_t position) const {
    std::vector<float> out(RetrievalRequest::kQuery), max(kShape.q_heads), sum(kShape.q_heads);
    const kernels::AttentionState state{.out = out.data(), .max = max.data(), .sum = sum.data()};
    kernels::init_attention(state, 1, kShape.q_heads, kShape.head_dim);
    attend(cache_.layers[0].plan(queries(position)), state);
    kernels::finish_attention(state, 1, kShape.q_heads, kShape.head_dim, nullptr);
    return out;
  }

  std::unique_ptr<Method> method_;
  KvCache cache_;
  Activity activity_;
  std::vector<float> q_, attended_;
};

/// Compares the attention of every case of weighted_retrieval/METHOD.json, whose numbers have six digits.
inline void expect_golden_attention(const std::string& method_name, double tolerance) {
  const nlohmann::json cases = golden("weighted_retrieval/" + method_name + ".json")["cases"];
  ASSERT_GE(cases.size(), 3U);
  for (const nlohmann::json& one : cases) {
    const WeightedStep step(one.at("method"), one.at("n"), one.at("seed"));
    ASSERT_NE(step.view(), nullptr);
    EXPECT_EQ(step.method().reach(), HookAccess::attention);
    for (size_t i = 0; i < step.attended().size(); ++i) {
      EXPECT_NEAR(step.attended()[i], one.at("out")[i].get<double>(), tolerance)
          << one.at("method") << ", number " << i;
    }
  }
}

/// Weighted by their probabilities, samples estimate attention to all n entries: the mean over many draws is near it,
/// and much nearer than every one of them. `spec` gives the method's settings for a seed.
inline void expect_mean_of_draws(const std::function<nlohmann::json(int64_t seed)>& spec, int64_t n) {
  const WeightedStep full({{"name", "full"}}, n, 7);
  constexpr int64_t kDraws = 200;
  std::vector<double> mean(64);
  double alone = 0;
  for (int64_t seed = 0; seed < kDraws; ++seed) {
    const WeightedStep step(spec(seed), n, 7);
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] += step.attended()[i] / static_cast<double>(kDraws);
      alone += std::fabs(step.attended()[i] - full.attended()[i]) / static_cast<double>(64 * kDraws);
    }
  }
  double together = 0;
  for (size_t i = 0; i < mean.size(); ++i) together += std::fabs(mean[i] - full.attended()[i]) / 64;
  EXPECT_LT(together, alone / 4);
}

}  // namespace kvarena::testing
