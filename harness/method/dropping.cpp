#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/method/scorer.h"

namespace kvarena {

DroppingMethod::DroppingMethod(std::string name, std::unique_ptr<Scorer> scorer)
    : name_(std::move(name)), scorer_(std::move(scorer)) {}

void DroppingMethod::parameters(ParameterVisitor& p) {
  budget_.parameters(p);
  scorer_->parameters(p);
}

void DroppingMethod::check(const std::string& place, std::vector<std::string>& problems) const {
  budget_.check(place, problems);
  scorer_->check(place, problems);
}

void DroppingMethod::compress(LayerContext& layer, const LayerObservations& seen) const {
  if (budget_.unlimited()) return;
  const LayerView view(layer, &seen);
  EntrySegment& tail = layer.cache.tail();
  if (scorer_->needs().step_attention) {
    const at::Tensor sums = view.group_sum(view.prompt_attention()).contiguous();  // [kv_heads, n]
    for (int64_t head = 0; head < view.kv_heads(); ++head) {
      const float* row = sums.data_ptr<float>() + head * view.n();
      std::copy(row, row + view.n(), tail.scores(head).begin());
    }
  }
  keep_best(layer, view, budget_.capacity(layer.prompt_tokens, layer.cache.shape(), layer.layers));
}

void DroppingMethod::observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const {
  if (budget_.unlimited() || !scorer_->needs().step_attention) return;
  EntrySegment& tail = layer.cache.tail();
  const LayerShape& shape = layer.cache.shape();
  const int64_t n = tail.entries(0);
  std::vector<float> sums(static_cast<size_t>(shape.q_heads * n));  // [q_heads, n]
  tail.add_probabilities(queries, /*causal=*/true, lse, sums.data(), n);
  for (int64_t q_head = 0; q_head < shape.q_heads; ++q_head) {
    const std::span<float> scores = tail.scores(q_head / shape.group());
    for (int64_t i = 0; i < n; ++i) scores[i] += sums[q_head * n + i];
  }
}

void DroppingMethod::settle(LayerContext& layer) const {
  if (budget_.unlimited() || !scorer_->evicts_while_decoding()) return;
  const int64_t capacity = budget_.capacity(layer.prompt_tokens, layer.cache.shape(), layer.layers);
  if (layer.cache.tail().entries(0) > capacity) keep_best(layer, LayerView(layer, nullptr), capacity);
}

void DroppingMethod::keep_best(LayerContext& layer, const LayerView& view, int64_t budget) const {
  if (budget >= view.n()) return;
  const at::Tensor scores = scorer_->score(view).to(at::kFloat).contiguous();
  KVARENA_ASSERT(scores.dim() == 2 && scores.size(0) == view.kv_heads() && scores.size(1) == view.n(),
                 fmt::format("{} scored [{}], the layer is [{}, {}]", name_, fmt::join(scores.sizes(), ", "),
                             view.kv_heads(), view.n()));
  const Protection protection = scorer_->protect(budget);
  std::vector<std::vector<int32_t>> kept;
  for (int64_t head = 0; head < view.kv_heads(); ++head) {
    const std::span<const float> row(scores.data_ptr<float>() + head * view.n(), static_cast<size_t>(view.n()));
    if (const int64_t bad = find_nan(row); bad >= 0) {
      fail({.place = fmt::format("{}: layer {}, kv head {}, entry {}", name_, view.layer(), head, bad),
            .found = "a score that is not a number",
            .expected = "finite scores",
            .action = "the model's keys or values may hold NaN or infinity"});
    }
    kept.push_back(select_best(row, budget, protection));
    layer.activity.entries_dropped += view.n() - budget;
  }
  layer.cache.tail().keep(kept);
}

}  // namespace kvarena
