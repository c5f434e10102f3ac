#include <cmath>
#include <vector>

#include "harness/cache/attend_plan.h"
#include "harness/core/random.h"
#include "harness/method/budget.h"
#include "harness/method/registry.h"

namespace kvarena {
namespace {

/// Sinks and a recent window whose leaving entries live on in their successors' values.  When entry j leaves,
///   m ~ Bernoulli(clamp(a[j] / mean over i > j of a[i], 0, 1)),   v[j+1 .. j+M] += m v[j] / M
/// with a = this step's attention, mean over the group; keys stay as they are. The prompt's middle goes without
/// merging, as in the authors' code.  Zhang, Du, Luo et al. 2024, CaM, ICML 2024, section 4 (OpenReview LCTmppB165);
/// code cam_hf.  Here an entry is merged and dropped in one step, where the authors' mask shows it for one step more
/// beside its copies; M stays the divisor near the end, as there. Draws are keyed by layer, head and position.
class Cam final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    budget_.parameters(p);
    p("recent_share", recent_share_).min(0).max(1).doc("share of the budget that goes to the newest entries");
    p("merge", merge_).min(1).doc("M: successors that take over a part of the value");
    p("seed", seed_).min(0).doc("of the draws");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    budget_.check(place, problems);
  }
  Needs needs() const override { return {.step_attention = true}; }

  void compress(LayerContext& layer, const LayerObservations& /*seen*/) const override {
    if (!budget_.unlimited()) evict(layer);
  }
  /// Merges the entries that after_append() is about to drop.
  void observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const override {
    EntrySegment& tail = layer.cache.tail();
    const int64_t n = tail.entries(0);
    const int64_t leaving = n - capacity(layer);
    if (budget_.unlimited() || leaving <= 0) return;
    const LayerShape& shape = layer.cache.shape();
    std::vector<float> attention(static_cast<size_t>(shape.q_heads * n));
    add_probabilities(tail.plan_newest(queries), lse, attention.data(), n);
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<double> mean(static_cast<size_t>(n), 0.0);
      for (int64_t h = head * shape.group(); h < (head + 1) * shape.group(); ++h) {
        for (int64_t i = 0; i < n; ++i) mean[i] += attention[h * n + i] / static_cast<double>(shape.group());
      }
      merge(layer, head, leaving, mean);
    }
  }
  HookAccess reach() const override { return HookAccess::rows; }
  void after_append(LayerContext& layer) const override {
    if (!budget_.unlimited()) evict(layer);
  }

 private:
  int64_t capacity(const LayerContext& layer) const {
    return budget_.capacity(layer.prompt_tokens, layer.cache.shape(), layer.budgeted());
  }
  /// Entries that stay at the front.
  int64_t sinks(int64_t capacity) const {
    return capacity - static_cast<int64_t>(std::floor(recent_share_ * static_cast<double>(capacity) + 1e-9));
  }

  void evict(LayerContext& layer) const {
    EntrySegment& tail = layer.cache.tail();
    const int64_t n = tail.entries(0);
    const int64_t room = capacity(layer);
    if (n <= room) return;
    std::vector<int32_t> kept;
    for (int64_t i = 0; i < n; ++i) {
      if (i < sinks(room) || i >= n - (room - sinks(room))) kept.push_back(static_cast<int32_t>(i));
    }
    const auto heads = static_cast<size_t>(layer.cache.shape().kv_heads);
    tail.keep(std::vector<std::vector<int32_t>>(heads, kept));
    layer.activity.entries_dropped += (n - room) * static_cast<int64_t>(heads);
  }

  /// Entries sinks .. sinks + leaving - 1 of a head are about to go, oldest first.
  void merge(LayerContext& layer, int64_t head, int64_t leaving, const std::vector<double>& attention) const {
    EntrySegment& tail = layer.cache.tail();
    const int64_t d = layer.cache.shape().head_dim;
    const auto n = static_cast<int64_t>(attention.size());
    const std::vector<int32_t> positions = tail.positions(head);
    std::vector<float> values(static_cast<size_t>(n * d));
    tail.read(head, nullptr, values.data());
    const RandomStream draws(static_cast<uint64_t>(seed_),
                             "merge layer " + std::to_string(layer.layer) + " head " + std::to_string(head));
    const int64_t first = sinks(capacity(layer));
    int64_t touched = first;  // behind the last entry that changed
    for (int64_t j = first; j < first + leaving && j + 1 < n; ++j) {
      double behind = 0;
      for (int64_t i = j + 1; i < n; ++i) behind += attention[i];
      const double mean = behind / static_cast<double>(n - 1 - j);
      const double chance = mean > 0 ? std::min(1.0, attention[j] / mean) : 0.0;
      if (draws.uniform(static_cast<uint64_t>(positions[j])) >= chance) continue;
      const int64_t last = std::min(n, j + 1 + merge_);
      for (int64_t i = j + 1; i < last; ++i) {
        for (int64_t c = 0; c < d; ++c) values[i * d + c] += values[j * d + c] / static_cast<float>(merge_);
      }
      touched = std::max(touched, last);
    }
    for (int64_t i = first; i < touched; ++i) tail.overwrite(head, i, nullptr, values.data() + i * d);
  }

  Budget budget_;
  double recent_share_ = 0.5;
  int64_t merge_ = 32;
  int64_t seed_ = 1;
};

KVARENA_METHOD(Cam, Family::compression,
               {.name = "cam",
                .title = "CaM",
                .summary = "Sinks and a window; what leaves is merged into its successors' values.",
                .paper = "OpenReview LCTmppB165 (ICML 2024), section 4"});

}  // namespace
}  // namespace kvarena
