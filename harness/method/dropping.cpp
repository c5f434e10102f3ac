#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "harness/core/error.h"
#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// What a layer remembers of its budget: how many entries each head may hold while decoding.
struct HeadCapacities final : public LayerIndex {
  explicit HeadCapacities(const LedgerPtr& ledger) : heads(LedgerAllocator<int64_t>(ledger)) {}
  LedgerVector<int64_t> heads;  // [kv_heads]

  [[nodiscard]] int64_t bytes() const override { return static_cast<int64_t>(heads.capacity() * sizeof(int64_t)); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<HeadCapacities>(ledger);
    copy->heads.assign(heads.begin(), heads.end());
    return copy;
  }
};

/// The layer as a whole where all heads hold the same number, otherwise head by head.
std::vector<LayerView> views(const LayerContext& layer, const LayerObservations* seen) {
  const EntrySegment& tail = layer.cache.tail();
  const int64_t heads = layer.cache.shape().kv_heads;
  bool equal = true;
  for (int64_t head = 1; head < heads; ++head) equal = equal && tail.entries(head) == tail.entries(0);
  if (equal) return {LayerView(layer, seen)};
  std::vector<LayerView> parts;
  for (int64_t head = 0; head < heads; ++head) parts.emplace_back(layer, seen, head);
  return parts;
}

}  // namespace

at::Tensor Scorer::remember_prompt(const LayerView& layer) const {
  return layer.group_sum(layer.prompt_attention()).unsqueeze(-1);
}

void Scorer::observe(const StepAttention& step) const {
  for (size_t q_head = 0; q_head < step.attention.size(); ++q_head) {
    const std::span<float> sums = step.entries->remembered(static_cast<int64_t>(q_head) / step.group());
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += step.attention[q_head][i];
  }
}

DroppingMethod::DroppingMethod(std::string name, std::unique_ptr<Scorer> scorer)
    : name_(std::move(name)), scorer_(std::move(scorer)), rule_{scorer_->default_rule()} {}

void DroppingMethod::parameters(ParameterVisitor& p) {
  if (scorer_->budgeted()) {
    budget_.parameters(p);
    p("budget_rule", rule_).doc("how layers and heads share the budget: uniform, layers, pyramid, heads or global");
  }
  scorer_->parameters(p);
}

void DroppingMethod::check(const std::string& place, std::vector<std::string>& problems) const {
  if (scorer_->budgeted()) {
    budget_.check(place, problems);
    const auto found = check_budget_rule(rule_.json, place + ".budget_rule");
    problems.insert(problems.end(), found.begin(), found.end());
  }
  scorer_->check(place, problems);
}

bool DroppingMethod::remembers() const { return scorer_->remembered_width() > 0 && !unlimited(); }

void DroppingMethod::start_remembering(LayerContext& layer, const LayerView& view) const {
  const int64_t width = scorer_->remembered_width();
  const at::Tensor start = scorer_->remember_prompt(view).to(at::kFloat).contiguous();  // [kv_heads, n, width]
  KVARENA_ASSERT(start.numel() == view.kv_heads() * view.n() * width,
                 fmt::format("{} remembers [{}] of the prompt", name_, fmt::join(start.sizes(), ", ")));
  EntrySegment& tail = layer.cache.tail();
  tail.remember(width);
  for (int64_t head = 0; head < view.kv_heads(); ++head) {
    std::copy_n(start.data_ptr<float>() + head * view.n() * width, view.n() * width, tail.remembered(head).data());
  }
}

void DroppingMethod::compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const {
  if (unlimited() || layers.empty()) return;
  const LayerContext& first = layers.front();
  const double share = share_of(first);
  std::vector<LayerScores> scores;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (remembers()) start_remembering(layers[layer], LayerView(layers[layer], &seen[layer]));
    scores.push_back(score(layers[layer], &seen[layer], share));
  }
  const std::vector<HeadBudgets> budgets = make_budget_rule(rule_.json)->divide({.share = share, .layers = scores});
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    LayerCache& cache = layers[layer].cache;
    if (scorer_->evicts_while_decoding() && scorer_->budgeted()) {
      auto capacities = std::make_unique<HeadCapacities>(cache.ledger());
      capacities->heads.assign(budgets[layer].begin(), budgets[layer].end());
      cache.index = std::move(capacities);
    }
    keep_best(layers[layer], &seen[layer], std::move(scores[layer]), budgets[layer]);
    if (!scorer_->evicts_while_decoding()) cache.tail().remember(0);
  }
}

void DroppingMethod::observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const {
  if (!scorer_->needs().step_attention || !scorer_->evicts_while_decoding() || !remembers()) return;
  EntrySegment& tail = layer.cache.tail();
  const LayerShape& shape = layer.cache.shape();
  int64_t longest = 0;
  for (int64_t head = 0; head < shape.kv_heads; ++head) longest = std::max(longest, tail.entries(head));
  for (int64_t t = 0; t < queries.q_len; ++t) {
    std::vector<float> sums(static_cast<size_t>(shape.q_heads * longest));  // [q_heads, longest]
    const LayerQueries one{.q = queries.q + t * queries.q_stride,
                           .q_len = 1,
                           .q_stride = queries.q_stride,
                           .position = queries.position + t};
    tail.add_probabilities(one, /*causal=*/false, lse + t * shape.q_heads, sums.data(), longest);
    StepAttention step{.entries = &tail,
                       .attention = {},
                       .lse = {},
                       .layer = layer.layer,
                       .position = one.position,
                       .prompt_tokens = layer.prompt_tokens};
    for (int64_t q_head = 0; q_head < shape.q_heads; ++q_head) {
      const int64_t n = tail.entries(q_head / shape.group());
      auto& row = step.attention.emplace_back(sums.begin() + q_head * longest, sums.begin() + q_head * longest + n);
      const int64_t unseen = queries.q_len - 1 - t;  // entries of later queries
      std::fill(row.end() - unseen, row.end(), 0.0F);
      step.lse.push_back(lse[t * shape.q_heads + q_head]);
    }
    scorer_->observe(step);
  }
}

void DroppingMethod::settle(LayerContext& layer) const {
  if (unlimited() || !scorer_->evicts_while_decoding()) return;
  const EntrySegment& tail = layer.cache.tail();
  const auto* capacities = dynamic_cast<const HeadCapacities*>(layer.cache.index.get());
  HeadBudgets budgets;
  bool full = capacities == nullptr;  // the scorer's own policy decides
  for (int64_t head = 0; head < layer.cache.shape().kv_heads; ++head) {
    budgets.push_back(capacities == nullptr ? tail.entries(head) : capacities->heads[head]);
    full = full || tail.entries(head) > budgets.back();
  }
  if (full) keep_best(layer, nullptr, score(layer, nullptr, share_of(layer)), budgets);
}

double DroppingMethod::share_of(const LayerContext& layer) const {
  if (!scorer_->budgeted()) return static_cast<double>(layer.prompt_tokens);
  return budget_.share(layer.prompt_tokens, layer.cache.shape(), layer.layers);
}

LayerScores DroppingMethod::score(const LayerContext& layer, const LayerObservations* seen, double share) const {
  const int64_t capacity = Division{.share = share, .layers = {}}.capacity();
  LayerScores result{.heads = {}, .protection = scorer_->protect(capacity), .share = share};
  for (const LayerView& view : views(layer, seen)) {
    const at::Tensor scores = scorer_->score(view).to(at::kFloat).contiguous();
    KVARENA_ASSERT(scores.dim() == 2 && scores.size(0) == view.kv_heads() && scores.size(1) == view.n(),
                   fmt::format("{} scored [{}], the layer is [{}, {}]", name_, fmt::join(scores.sizes(), ", "),
                               view.kv_heads(), view.n()));
    for (int64_t head = 0; head < view.kv_heads(); ++head) {
      const float* row = scores.data_ptr<float>() + head * view.n();
      result.heads.emplace_back(row, row + view.n());
      const auto bad = std::ranges::find_if(result.heads.back(), [](float score) { return std::isnan(score); });
      if (bad == result.heads.back().end()) continue;
      fail({.place = fmt::format("{}: layer {}, kv head {}, entry {}", name_, view.layer(), view.first_head() + head,
                                 bad - result.heads.back().begin()),
            .found = "a score that is not a number",
            .expected = "finite scores",
            .action = "the model's keys or values may hold NaN or infinity"});
    }
  }
  return result;
}

void DroppingMethod::keep_best(LayerContext& layer, const LayerObservations* seen, LayerScores scores,
                               HeadBudgets budgets) const {
  for (const LayerView& view : views(layer, seen)) {
    const int64_t first = view.first_head();
    const int64_t last = first + view.kv_heads();
    LayerScores part{.heads = {scores.heads.begin() + first, scores.heads.begin() + last},
                     .protection = scores.protection,
                     .share = scores.share};
    HeadBudgets part_budgets(budgets.begin() + first, budgets.begin() + last);
    scorer_->refine(view, part, part_budgets);
    std::ranges::move(part.heads, scores.heads.begin() + first);
    std::ranges::copy(part_budgets, budgets.begin() + first);
  }
  EntrySegment& tail = layer.cache.tail();
  std::vector<std::vector<int32_t>> kept;
  int64_t dropped = 0;
  for (size_t head = 0; head < budgets.size(); ++head) {
    kept.push_back(select_best(scores.heads[head], budgets[head], scorer_->protect(budgets[head])));
    dropped += tail.entries(static_cast<int64_t>(head)) - static_cast<int64_t>(kept.back().size());
  }
  layer.activity.entries_dropped += dropped;
  if (dropped > 0) tail.keep(kept);
}

}  // namespace kvarena
