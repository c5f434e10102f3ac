#include "harness/engine/session/shared_pass.h"

#include <vector>

#include "harness/cache/arriving_cache.h"
#include "harness/cache/known_choice.h"
#include "harness/core/failure.h"
#include "harness/engine/session/forwarding_hooks.h"

namespace kvarena {
namespace {

/// Keeps what hooks throw out of a pass that others share, and calls them no more.
class GuardedHooks final : public ForwardingHooks, public KnownChoice, public ArrivingCache {
 public:
  explicit GuardedHooks(AttentionHooks* next)
      : ForwardingHooks(next),
        known_(dynamic_cast<const KnownChoice*>(next)),
        arriving_(dynamic_cast<ArrivingCache*>(next)) {}

  [[nodiscard]] bool known(const KvCache& cache) const override { return known_ != nullptr && known_->known(cache); }
  [[nodiscard]] bool arriving(const KvCache& cache) const override {
    return arriving_ != nullptr && arriving_->arriving(cache);
  }
  /// Waits for layers behind one that failed, too: nothing may be on its way when the pass is over.
  void arrive(int64_t layer) override {
    const std::string failure = failure_of([&] { arriving_->arrive(layer); });
    if (failure_.empty()) failure_ = failure;
  }
  void complete(KvCache& cache) override {
    guard([&] { ForwardingHooks::complete(cache); });
  }
  void before_pass(KvCache& cache, std::span<const int32_t> tokens) override {
    guard([&] { ForwardingHooks::before_pass(cache, tokens); });
  }
  void before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) override {
    guard([&] { ForwardingHooks::before_attention(layer, cache, queries); });
  }
  [[nodiscard]] kernels::AttentionReader* reader(int64_t layer, const LayerCache& cache,
                                                 const LayerQueries& queries) override {
    kernels::AttentionReader* found = nullptr;
    guard([&] { found = ForwardingHooks::reader(layer, cache, queries); });
    return found;
  }
  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override {
    guard([&] { ForwardingHooks::after_attention(layer, cache, queries, lse); });
  }
  void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override {
    guard([&] { ForwardingHooks::after_layer(layer, rows, count, hidden_size); });
  }
  /// Message of what they threw, empty while all is well.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  template <typename Work>
  void guard(Work&& work) {
    if (failure_.empty()) failure_ = failure_of(work);
  }

  const KnownChoice* known_;
  ArrivingCache* arriving_;
  std::string failure_;
};

/// Rows of logits that a pass asks for.
size_t logits_rows(const SequencePass& pass) {
  if (pass.logits == LogitsRows::all) return pass.tokens.size();
  return pass.logits == LogitsRows::last ? 1 : 0;
}

}  // namespace

void run_pass(Transformer& model, std::span<PassMember* const> members) {
  std::vector<PassMember*> fed;
  std::vector<SequencePass> batch;
  std::vector<GuardedHooks> hooks;
  hooks.reserve(members.size());  // passes point at them
  for (PassMember* member : members) {
    SequencePass pass;
    if (const std::string failure = failure_of([&] { pass = member->next_pass(); }); !failure.empty()) {
      member->failed(failure);
      continue;
    }
    GuardedHooks& guarded = hooks.emplace_back(pass.hooks);
    if (pass.hooks != nullptr) pass.hooks = &guarded;
    fed.push_back(member);
    batch.push_back(pass);
  }
  if (batch.empty()) return;

  std::span<const float> logits = model.forward(batch);
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  for (size_t i = 0; i < fed.size(); ++i) {
    const size_t count = logits_rows(batch[i]) * vocab;
    std::string failure = hooks[i].failure();
    if (failure.empty()) failure = failure_of([&] { fed[i]->consume(logits.first(count)); });
    if (!failure.empty()) fed[i]->failed(failure);
    logits = logits.subspan(count);
  }
}

}  // namespace kvarena
