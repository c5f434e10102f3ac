#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/cache/pruned_key_segment.h"
#include "harness/core/error.h"
#include "harness/core/nested.h"
#include "harness/method/registry.h"

namespace kvarena {
namespace {

/// Prunes channels of keys.  Of each kv head, the share of channels c whose score is smallest leaves the prompt's keys:
///   s[c] = (mean over the last `window` queries and the group's query heads of q[c]^2) (mean over the keys of k[c]^2),
/// in proportion the squared Frobenius norm of what the channel gives to the products of these queries and keys (the
/// greedy choice of section 3.2). Values stay whole, and so do the keys of the `recent` newest entries of the prompt
/// and of all later ones; 0 there is kvpress's form, 32 the authors' scripts'. Keys and queries are rotated. The
/// authors' code prunes query heads by themselves on repeated keys; the mean over a group is kvpress's, reviewed by the
/// first author. With `over`, a dropping method acts first and what it keeps is pruned, by the means over what it
/// keeps. Products cost what they cost before: missing channels are filled with 0 for them, as in the authors' code.
/// Xu, Jie, Dong, Wang, Lu, Zhou, Saha, Xiong, Sahoo 2024, arXiv:2407.21018, section 3.2.
class ThinK final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    p("pruned", pruned_).min(0).max(1).doc("share of a kv head's channels that leave the keys, rounded down");
    p("window", window_).min(1).doc("queries at the end of the prompt that are asked");
    p("recent", recent_).min(0).doc("newest entries of the prompt whose keys stay whole");
    p("over", over_).doc("a dropping method that acts on the prompt first; keys that it keeps are pruned");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    check_within(over_, place + ".over", problems);
    if (!over_ || over_->only_compresses()) return;
    problems.push_back(describe({.place = place + ".over.name",
                                 .found = "\"" + over_.name() + "\"",
                                 .expected = "a method that drops entries of the prompt and leaves later ones alone"}));
  }

  Needs needs() const override {
    const Needs own{.window = window_};
    return over_ ? combine(over_->needs(), own) : own;
  }
  HookAccess reach() const override { return HookAccess::nothing; }
  bool compresses_by_layer() const override { return !over_ || over_->compresses_by_layer(); }

  void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const override {
    if (over_) over_->compress_all(layers, seen);
    for (size_t layer = 0; layer < layers.size(); ++layer) compress(layers[layer], seen[layer]);
  }

  void compress(LayerContext& layer, const LayerObservations& seen) const override {
    EntrySegment& tail = layer.cache.tail();
    const LayerShape& shape = tail.shape();
    const auto leave = static_cast<int64_t>(std::floor(pruned_ * static_cast<double>(shape.head_dim) + 1e-9));
    std::vector<int64_t> counts;
    int64_t all = 0;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      counts.push_back(std::max<int64_t>(0, tail.entries(head) - recent_));
      all += counts.back();
    }
    if (leave == 0 || all == 0) return;
    PrunedKeySegment::Channels channels;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      channels.push_back(largest(scores(tail, seen, head), shape.head_dim - leave));
    }
    auto pruned = std::make_unique<PrunedKeySegment>(tail, counts, channels, layer.cache.ledger());
    forget(tail, counts);
    layer.cache.insert_before_tail(std::move(pruned));
    layer.activity.entries_packed += all;
  }

 private:
  /// s of a kv head, [head_dim].
  [[nodiscard]] std::vector<double> scores(const EntrySegment& tail, const LayerObservations& seen,
                                           int64_t head) const {
    const LayerShape& shape = tail.shape();
    const int64_t d = shape.head_dim, n = tail.entries(head);
    std::vector<float> keys(static_cast<size_t>(n * d));
    tail.read(head, keys.data(), nullptr);
    std::vector<double> of_keys(static_cast<size_t>(d)), of_queries(static_cast<size_t>(d));
    for (int64_t i = 0; i < n * d; ++i) of_keys[i % d] += static_cast<double>(keys[i]) * keys[i];
    for (int64_t t = seen.window - std::min(window_, seen.window); t < seen.window; ++t) {
      const float* const q = &seen.window_queries[(t * shape.q_heads + head * shape.group()) * d];
      for (int64_t i = 0; i < shape.group() * d; ++i) of_queries[i % d] += static_cast<double>(q[i]) * q[i];
    }
    for (int64_t c = 0; c < d; ++c) of_keys[c] *= of_queries[c];
    return of_keys;
  }

  /// The `count` channels with the largest scores, ascending; of equals the lower ones.
  static std::vector<int32_t> largest(const std::vector<double>& scores, int64_t count) {
    std::vector<int32_t> channels(scores.size());
    std::iota(channels.begin(), channels.end(), 0);
    std::ranges::stable_sort(channels, [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
    channels.resize(static_cast<size_t>(count));
    std::ranges::sort(channels);
    return channels;
  }

  /// Takes the first counts[head] entries of each head from the tail.
  static void forget(EntrySegment& tail, const std::vector<int64_t>& counts) {
    if (!tail.ragged()) return tail.drop_front(counts.front());
    std::vector<std::vector<int32_t>> rest;
    for (size_t head = 0; head < counts.size(); ++head) {
      const int64_t n = tail.entries(static_cast<int64_t>(head));
      std::vector<int32_t>& list = rest.emplace_back(static_cast<size_t>(n - counts[head]));
      std::iota(list.begin(), list.end(), static_cast<int32_t>(counts[head]));
    }
    tail.keep(rest);
  }

  double pruned_ = 0.4;
  int64_t window_ = 32;
  int64_t recent_ = 32;
  Nested<Method> over_;
};

KVARENA_METHOD(ThinK, Family::compression,
               {.name = "thin_k",
                .title = "ThinK",
                .summary = "Drops the channels of the prompt's keys that its last queries use least.",
                .paper = "arXiv:2407.21018, section 3.2"});

}  // namespace
}  // namespace kvarena
