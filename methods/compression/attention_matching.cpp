#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/cache/biased_segment.h"
#include "harness/core/error.h"
#include "harness/core/normal_draws.h"
#include "harness/method/budget.h"
#include "harness/method/layer_view.h"
#include "harness/method/registry.h"
#include "kernels/common/parallel.h"

namespace kvarena {
namespace {

/// The x of smallest |a x - b|, for a [n, t] and b [n, m]. Where columns depend on each other, of smallest
/// |a x - b|^2 + 1e-6 |x|^2, in double.
at::Tensor least_squares(const at::Tensor& a, const at::Tensor& b) {
  try {
    const at::Tensor x = std::get<0>(at::linalg_lstsq(a, b, std::nullopt, "gels"));
    if (x.isfinite().all().item<bool>()) return x;
  } catch (const c10::Error&) {  // no full rank
  }
  const at::Tensor wide = a.to(at::kDouble);
  const at::Tensor square = wide.t().matmul(wide) + 1e-6 * at::eye(a.size(1), at::kDouble);
  return at::cholesky_solve(wide.t().matmul(b.to(at::kDouble)), at::linalg_cholesky(square)).to(at::kFloat);
}

/// Attention of a head's queries, n of them.
struct Attention {
  at::Tensor largest;  // [n, 1] score
  at::Tensor sums;     // [n, 1] of e^(score - largest)
  at::Tensor outputs;  // [n, dim]
  at::Tensor squares;  // [entries] of probabilities, summed over queries
};

Attention attention_of(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values) {
  constexpr int64_t kQueries = 1024;  // at a time
  std::vector<at::Tensor> largest, sums, outputs;
  at::Tensor squares = at::zeros({keys.size(0)}, at::kDouble);
  for (const at::Tensor& some : queries.split(kQueries)) {
    const at::Tensor scores = some.matmul(keys.t());
    largest.push_back(scores.amax(1, /*keepdim=*/true));
    const at::Tensor weights = (scores - largest.back()).exp();
    sums.push_back(weights.sum(1, /*keepdim=*/true));
    const at::Tensor shares = weights / sums.back();
    outputs.push_back(shares.matmul(values));
    squares += shares.square().sum(0);
  }
  return {at::cat(largest), at::cat(sums), at::cat(outputs), squares};
}

/// Fewer entries that give queries what all of them gave.  Of each kv head the t entries stay whose attention
/// probabilities have the largest mean square over the prompt's queries, whatever the order of query and entry. Their
/// keys are left as they are; biases b make the softmax's denominators match, and new values its output:
///   B = argmin sum over q of (sum_j B_j e^(q.k_j) - sum_i e^(q.k_i))^2 within [e^lower, e^upper],  b = log B
///   V = argmin sum over q of |softmax(q.k + b) V - attention(q)|^2
/// B starts at the least squares' solution, brought into its bounds, and takes `steps` of projected gradient descent,
/// whose width comes of three power iterations from a random vector. Protected entries, and what the chat template
/// puts in front of the user's text, stay as they are, beside the budget's rest. Zweiger, Fu, Guo, Kim 2026,
/// arXiv:2602.16284: AM-HighestAttnKeys of adamzweiger/compaction (2e59cc8) with uniform budgets, without its on-policy
/// passes, from the queries of its config context-prefill, of which it takes at most 100,000 a kv head. A bias takes 4
/// bytes.
class AttentionMatching final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    budget_.parameters(p);
    protection_.parameters(p);
    p("lower", lower_).doc("smallest bias");
    p("upper", upper_).doc("largest bias");
    p("steps", steps_).min(0).doc("of projected gradient descent");
    p("seed", seed_).min(0).doc("of the power iterations");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    budget_.check(place, problems);
    if (lower_ <= upper_) return;
    problems.push_back(describe({.place = place + ".lower",
                                 .found = fmt::format("{}", lower_),
                                 .expected = fmt::format("at most upper, {}", upper_)}));
  }
  Needs needs() const override { return {.window = kWholePrompt}; }
  HookAccess reach() const override { return HookAccess::nothing; }
  bool compresses_by_layer() const override { return true; }

  void compress(LayerContext& layer, const LayerObservations& seen) const override {
    EntrySegment& tail = layer.cache.tail();
    const LayerShape& shape = tail.shape();
    const int64_t n = tail.entries(0), capacity = capacity_of(layer);
    if (budget_.unlimited() || capacity >= n) return;
    const Protection whole = protected_of(layer, capacity);
    const kernels::ScopedThreads alone(1);  // with more, sums are divided otherwise and solutions differ
    const LayerView view(layer, &seen);
    const at::Tensor queries = view.queries(kWholePrompt).slice(1, whole.sinks);  // [q_heads, n, head_dim]
    const at::Tensor keys = view.keys(), values = view.values(), positions = view.positions();
    auto compact = std::make_unique<BiasedSegment>(shape, layer.cache.ledger());
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const at::Tensor own = queries.slice(0, head * shape.group(), (head + 1) * shape.group());
      const RandomStream draws(static_cast<uint64_t>(seed_),
                               fmt::format("attention_matching {} {}", layer.layer, head));
      const Entries all{at::arange(n), keys[head], values[head], at::zeros({n})};
      const Entries fitted =
          fit(all.part(whole.sinks, n - whole.recent), own.reshape({-1, shape.head_dim}) * attention_scale(shape),
              capacity - whole.sinks - whole.recent, draws);
      add(*compact, head, positions[head], joined({all.part(0, whole.sinks), fitted, all.part(n - whole.recent, n)}));
    }
    tail.drop_front(n);
    layer.cache.insert_before_tail(std::move(compact));
    layer.activity.entries_dropped += (n - capacity) * shape.kv_heads;
  }

 private:
  /// A head's entries.
  struct Entries {
    at::Tensor places;  // in the cache, ascending
    at::Tensor keys, values, biases;

    [[nodiscard]] Entries part(int64_t first, int64_t end) const {
      return {places.slice(0, first, end), keys.slice(0, first, end), values.slice(0, first, end),
              biases.slice(0, first, end)};
    }
  };

  /// Entries that a head may hold.
  [[nodiscard]] int64_t capacity_of(const LayerContext& layer) const {
    const LayerShape& shape = layer.cache.shape();
    const int64_t count = budget_.capacity(layer.prompt_tokens, shape, layer.budgeted());
    if (!budget_.bytes) return count;
    constexpr int64_t kNumber = 4;  // bytes of a position, and of a bias
    const int64_t entry = shape.entry_bytes() / shape.kv_heads + kNumber;
    return std::max<int64_t>(1, count * entry / (entry + kNumber));
  }
  /// Protected entries, those of the chat template among them; one at least is fitted.
  [[nodiscard]] Protection protected_of(const LayerContext& layer, int64_t capacity) const {
    Protection whole;
    if (layer.model != nullptr && layer.prompt_begin == 0) {
      const std::vector<int32_t>& head = layer.model->text.before_user;
      const bool there =
          head.size() <= layer.prompt.size() && std::ranges::equal(head, layer.prompt.first(head.size()));
      whole.sinks = there ? std::ssize(head) : 0;
    }
    whole = protection_.beside(whole);
    whole.sinks = std::min(whole.sinks, capacity - 1);
    whole.recent = std::min(whole.recent, capacity - 1 - whole.sinks);
    return whole;
  }

  /// `count` entries in place of all, for queries [n, head_dim] that have the scale of scores.
  [[nodiscard]] Entries fit(const Entries& all, const at::Tensor& queries, int64_t count,
                            const RandomStream& draws) const {
    const Attention attention = attention_of(queries, all.keys, all.values);
    const at::Tensor best = attention.squares.argsort(/*stable=*/true, 0, /*descending=*/true).narrow(0, 0, count);
    const at::Tensor scores = queries.matmul(all.keys.index_select(0, best).t());  // [n, count]
    const at::Tensor biases = factors((scores - attention.largest).exp(), attention.sums, draws).log();
    const at::Tensor values = least_squares(at::softmax(scores + biases, 1), attention.outputs);
    const auto [places, order] = best.sort();
    return {all.places.index_select(0, places), all.keys.index_select(0, places), values.index_select(0, order),
            biases.index_select(0, order)};
  }

  /// B [columns], within its bounds, of small |weights B - sums|.
  [[nodiscard]] at::Tensor factors(const at::Tensor& weights, const at::Tensor& sums, const RandomStream& draws) const {
    constexpr double kLeast = 1e-6;
    const double least = std::exp(lower_), most = std::exp(upper_);
    at::Tensor found = least_squares(weights, sums).clamp(least, most);
    at::Tensor u = at::tensor(draw_normal(weights.size(1), draws)).unsqueeze(1);
    for (int64_t i = 0; i < kPowerSteps; ++i) {
      u = weights.t().matmul(weights.matmul(u / u.norm()));
    }
    u = u / u.norm();
    const double squared = std::max(weights.matmul(u).square().sum().item<double>(), kLeast);
    for (int64_t i = 0; i < steps_; ++i) {
      found = (found - weights.t().matmul(weights.matmul(found) - sums) / squared).clamp(least, most);
    }
    return found.squeeze(1);
  }

  static Entries joined(const std::vector<Entries>& parts) {
    const auto all = [&](at::Tensor Entries::*member) {
      std::vector<at::Tensor> rows;
      for (const Entries& part : parts) rows.push_back(part.*member);
      return at::cat(rows).contiguous();
    };
    return {all(&Entries::places), all(&Entries::keys), all(&Entries::values), all(&Entries::biases)};
  }

  /// Adds a head's entries; positions [n] of the cache's.
  static void add(BiasedSegment& to, int64_t head, const at::Tensor& positions, const Entries& entries) {
    const at::Tensor own = positions.index_select(0, entries.places).to(at::kInt);
    const auto count = static_cast<size_t>(own.size(0));
    to.append_to_head(head, {own.const_data_ptr<int32_t>(), count}, entries.keys.const_data_ptr<float>(),
                      entries.values.const_data_ptr<float>(), {entries.biases.const_data_ptr<float>(), count});
  }

  static constexpr int64_t kPowerSteps = 3;

  Budget budget_;
  UserProtection protection_;
  double lower_ = -3;
  double upper_ = 3;
  int64_t steps_ = 2;
  int64_t seed_ = 0;
};

KVARENA_METHOD(AttentionMatching, Family::compression,
               {.name = "attention_matching",
                .title = "Attention Matching",
                .summary = "Keeps the entries attended to most, with biases and values fitted to stand for all.",
                .paper = "arXiv:2602.16284"});

}  // namespace
}  // namespace kvarena
