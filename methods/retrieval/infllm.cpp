#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/cache/attend_plan.h"
#include "harness/cache/clamped_distance_view.h"
#include "harness/cache/entry_source.h"
#include "harness/core/error.h"
#include "harness/method/model_facts.h"
#include "harness/method/registry.h"
#include "harness/method/row_index.h"
#include "harness/method/row_ops.h"
#include "harness/storage/block_cache.h"
#include "kernels/top_k/top_k.h"

namespace kvarena {
namespace {

using storage::BlockCache;

/// Sizes of one request.
struct Sizes {
  int64_t initial = 0;
  int64_t local = 0;
  int64_t topk = 0;
  int64_t cached = 0;
};

/// A layer's entries beside its tail. Keys lie here without their rotation.
struct Memory final : public LayerIndex, public EntrySource {
  Memory(const LayerShape& shape, const LedgerPtr& ledger)
      : initial(shape, ledger),
        overflow(shape, ledger),
        representatives(shape.q_heads, shape.head_dim, shape.dtype, ledger) {}

  EntrySegment initial;                // the first tokens
  EntrySegment overflow;               // the tail's first entries, once more: those out of the newest query's window
  std::unique_ptr<BlockCache> blocks;  // what follows the first tokens
  RowIndex representatives;            // a row a block for each query head

  [[nodiscard]] std::vector<const Segment*> held() const override { return blocks->held_entries(); }
  [[nodiscard]] int64_t bytes() const override {
    return initial.bytes() + overflow.bytes() + blocks->bytes() + representatives.bytes();
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<Memory>(initial.shape(), ledger);
    copy->initial = std::move(static_cast<EntrySegment&>(*initial.clone(ledger)));
    copy->overflow = std::move(static_cast<EntrySegment&>(*overflow.clone(ledger)));
    copy->blocks.reset(static_cast<BlockCache*>(blocks->clone(ledger).release()));
    copy->representatives = std::move(static_cast<RowIndex&>(*representatives.clone(ledger)));
    return copy;
  }
};

/// Rotates rows [count, heads, head_dim] by `moves[i]` positions. The rotation's magnitude stays in both factors of a
/// product, so that far and near scores have the same scale.
void rotate(float* rows, int64_t heads, int64_t head_dim, const Rotation& rotation, const std::vector<int32_t>& moves) {
  rotate_rows(rows, heads, head_dim, rotation.inverse, /*magnitude=*/1, moves);
}

/// Attention over the first tokens, a local window, and a few blocks of what lies between, in the prompt as in the
/// answer. Entries closer than `local` have their true distance; farther ones have keys without rotation and see the
/// query rotated by local - 1 positions, whatever their distance; one softmax runs over both. What left the window
/// waits until it makes a block, which goes behind the device; the blocks used last stay on it too.
///
/// A block's representative, for each query head: the mean of the keys of its `repr` entries with the largest
/// attention received while they were in the window, a[h,i] = sum over queries of softmax(...)[i].
///   score(block) = sum over query heads of mean(q) . representative,   mean over the pass's queries
/// and the `topk` best blocks are attended by all heads and queries of the pass. A prompt goes through the model `exec`
/// tokens at a time, its last token by itself, as the authors' greedy search does.
/// Xiao et al. 2024, arXiv:2402.04617, section 3; inf_llm/attention/context_manager.py of the authors' code (12b7079).
/// The mask of that code lets the queries of a pass see entries from afar that some of them also see in their window;
/// here every entry is seen once. Queries and keys are rotated back from the positions that the model gave them.
///
/// total: SpeCache's Table 2 sizes InfLLM by a share of the prompt as Yuan et al. 2024 do (longctx_bench):
///   t = int(total n), initial = int(0.021 t), topk = int(0.324 t) // block, local = max(512, t - initial - block
///   topk).
class InfLlm final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    p("init", init_).min(0).doc("first entries, always attended");
    p("local", local_).min(1).doc("newest entries, attended at their true distance");
    p("block", block_).min(1).doc("entries of a block");
    p("topk", topk_).min(0).doc("blocks that a pass attends to");
    p("repr", repr_).min(1).doc("entries of a block that stand for it");
    p("exec", exec_).min(1).doc("prompt tokens that choose blocks together");
    p("cached_blocks", cached_).min(0).doc("blocks that stay on the device");
    p("total", total_)
        .above(0)
        .max(1)
        .doc("share of the prompt to attend to, in place of init, local, topk and cached_blocks");
    p("tier", tier_).one_of({"host", "disk"}).doc("where blocks lie");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    const auto at_most = [&](const char* name, int64_t value, const char* other, int64_t limit) {
      if (value <= limit) return;
      problems.push_back(describe({.place = place + "." + name,
                                   .found = std::to_string(value),
                                   .expected = fmt::format("at most {} ({})", other, limit)}));
    };
    at_most("repr", repr_, "block", block_);
    at_most("exec", exec_, total_ ? "the window of a share" : "local", total_ ? kLeastLocal : local_);
    if (!total_) at_most("topk", topk_, "cached_blocks", cached_);
  }

  int64_t prompt_pass() const override { return exec_; }
  HookAccess reach() const override { return HookAccess::views; }

  void select(LayerContext& layer, const LayerQueries& queries) const override {
    if (layer.cache.shape().window > 0) return;  // sees few entries as it is
    const Sizes sizes = sizes_of(layer);
    Memory& memory = of(layer, sizes);
    take_overflow(layer, memory, sizes.local);
    if (memory.initial.entries(0) + memory.overflow.entries(0) + memory.blocks->blocks() == 0) return;

    const LayerShape& shape = layer.cache.shape();
    ClampedDistanceView::Parts parts{.tail = &layer.cache.tail(), .window = sizes.local, .far = {&memory.initial}};
    parts.overflow = &memory.overflow;
    parts.queries = from_afar(layer, queries, sizes.local);
    const std::vector<int32_t> chosen = choose(memory, shape, parts.queries, sizes.topk);
    fetch(*memory.blocks, chosen, layer.activity);
    for (const int32_t block : chosen) parts.far.push_back(&memory.blocks->entries_of(block));

    // Nothing out of the window is attended where it is.
    const int64_t far = memory.initial.entries(0) + memory.blocks->blocks() * block_ + memory.overflow.entries(0);
    layer.activity.entries_skipped += shape.kv_heads * far;
    layer.cache.view = std::make_unique<ClampedDistanceView>(std::move(parts));
  }

  void observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const override {
    const LayerShape& shape = layer.cache.shape();
    if (shape.window > 0) return;
    EntrySegment& tail = layer.cache.tail();
    const int64_t n = tail.entries(0);
    std::vector<float> sums(static_cast<size_t>(shape.q_heads * n));
    AttentionPlan near{.queries = queries, .items = {}};
    tail.plan_newest(queries, near, sizes_of(layer).local);
    add_probabilities(near, lse, sums.data(), n);
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      const std::span<float> received = tail.entry_scores(h / shape.group());
      for (int64_t i = 0; i < n; ++i) received[i * shape.group() + h % shape.group()] += sums[h * n + i];
    }
  }

  void after_append(LayerContext& layer) const override {
    if (layer.cache.shape().window > 0) return;
    const Sizes sizes = sizes_of(layer);
    Memory& memory = of(layer, sizes);
    take_overflow(layer, memory, sizes.local);
    int64_t gone = std::min(sizes.initial - memory.initial.entries(0), memory.overflow.entries(0));
    if (gone > 0) memory.initial.append_entries(memory.overflow, 0, gone);
    const int64_t sent = memory.blocks->offloaded_bytes();
    for (; memory.overflow.entries(0) - gone >= block_; gone += block_) {
      represent(layer, memory, gone);
      memory.blocks->append(memory.overflow, gone);
    }
    layer.activity.traffic.offloaded_bytes += memory.blocks->offloaded_bytes() - sent;
    if (gone == 0) return;
    memory.overflow.drop_front(gone);
    layer.cache.tail().drop_front(gone);
  }

 private:
  static constexpr int64_t kLeastLocal = 512;  // of `total`

  [[nodiscard]] Sizes sizes_of(const LayerContext& layer) const {
    if (!total_) return {.initial = init_, .local = local_, .topk = topk_, .cached = cached_};
    const auto all = static_cast<int64_t>(*total_ * static_cast<double>(layer.prompt_tokens));
    const auto share = [&](double of) { return static_cast<int64_t>(of * static_cast<double>(all)); };
    Sizes sizes{.initial = share(0.021), .topk = share(0.324) / block_};
    sizes.local = std::max(kLeastLocal, all - sizes.initial - block_ * sizes.topk);
    sizes.cached = sizes.topk;
    return sizes;
  }

  /// The layer's memory, made when it is first asked for.
  [[nodiscard]] Memory& of(const LayerContext& layer, const Sizes& sizes) const {
    LayerCache& cache = layer.cache;
    if (!cache.index) {
      KVARENA_ASSERT(layer.model != nullptr && layer.model->tiers != nullptr, "a machine without tiers");
      auto memory = std::make_unique<Memory>(cache.shape(), cache.ledger());
      const BlockCache::Options options{.tier = tier_ == "disk" ? Tier::disk : Tier::host,
                                        .block = block_,
                                        .held = sizes.cached,
                                        .first = sizes.initial};
      memory->blocks = std::make_unique<BlockCache>(cache.shape(), cache.ledger(), layer.model->tiers, options);
      cache.tail().reserve_scores(cache.shape().group());
      cache.index = std::move(memory);
    }
    return static_cast<Memory&>(*cache.index);
  }

  /// Copies the entries that are out of the newest token's window, without their rotation.
  static void take_overflow(const LayerContext& layer, Memory& memory, int64_t local) {
    const EntrySegment& tail = layer.cache.tail();
    const LayerShape& shape = tail.shape();
    const int64_t had = memory.overflow.entries(0);
    const int64_t count = tail.entries(0) - local - had;
    if (count <= 0) return;
    const int64_t row = shape.kv_heads * shape.head_dim;
    std::vector<float> keys(static_cast<size_t>(count * row));
    std::vector<float> values(keys.size());
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      tail.read_some(h, had, count, keys.data() + h * shape.head_dim, values.data() + h * shape.head_dim, row);
    }
    const int32_t first = tail.position(0, had);
    std::vector<int32_t> back(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) back[i] = static_cast<int32_t>(-(first + i));
    rotate(keys.data(), shape.kv_heads, shape.head_dim, layer.model->rotation_of(layer.layer), back);
    memory.overflow.append(keys.data(), values.data(), count, row, first);
  }

  /// The pass's queries at the one distance, [q_len, q_heads, head_dim].
  static std::vector<float> from_afar(const LayerContext& layer, const LayerQueries& queries, int64_t local) {
    const LayerShape& shape = layer.cache.shape();
    const int64_t row = shape.q_heads * shape.head_dim;
    std::vector<float> rotated(static_cast<size_t>(queries.q_len * row));
    std::vector<int32_t> moves;
    for (int64_t t = 0; t < queries.q_len; ++t) {
      std::copy_n(queries.q + t * queries.q_stride, row, rotated.data() + t * row);
      moves.push_back(static_cast<int32_t>(local - 1 - (queries.position + t)));
    }
    rotate(rotated.data(), shape.q_heads, shape.head_dim, layer.model->rotation_of(layer.layer), moves);
    return rotated;
  }

  /// The best blocks for all of the pass's queries, ascending.
  static std::vector<int32_t> choose(const Memory& memory, const LayerShape& shape, const std::vector<float>& rotated,
                                     int64_t topk) {
    const int64_t blocks = memory.blocks->blocks();
    std::vector<int32_t> chosen(static_cast<size_t>(std::min(blocks, topk)));
    std::iota(chosen.begin(), chosen.end(), 0);
    if (blocks <= topk || topk == 0) return chosen;
    const auto row = static_cast<size_t>(shape.q_heads * shape.head_dim);
    std::vector<float> mean(row);
    const float share = static_cast<float>(row) / static_cast<float>(rotated.size());
    for (size_t i = 0; i < rotated.size(); ++i) mean[i % row] += rotated[i] * share;
    std::vector<float> total(static_cast<size_t>(blocks));
    std::vector<float> own(total.size());
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      memory.representatives.heads[h].score(mean.data() + h * shape.head_dim, 1, shape.head_dim, own);
      for (int64_t i = 0; i < blocks; ++i) total[i] += own[i];
    }
    require_number(kernels::top_k(total.data(), blocks, topk, chosen.data()));
    return chosen;
  }

  static void require_number(int64_t ranked) {
    if (ranked < 0) {
      fail({.place = "infllm", .found = "a score that is not a number", .expected = "finite keys and queries"});
    }
  }

  static void fetch(BlockCache& blocks, const std::vector<int32_t>& chosen, Activity& activity) {
    blocks.use(chosen);
    activity.traffic += blocks.loaded();
  }

  /// The representative of the block that begins with entry `first` of the tail.
  void represent(const LayerContext& layer, Memory& memory, int64_t first) const {
    const EntrySegment& tail = layer.cache.tail();
    const LayerShape& shape = tail.shape();
    const int64_t dim = shape.head_dim;
    std::vector<float> keys(static_cast<size_t>(memory.overflow.entries(0) * dim));
    std::vector<float> received(static_cast<size_t>(block_));
    std::vector<int32_t> best(static_cast<size_t>(repr_));
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      if (h % shape.group() == 0) memory.overflow.read(h / shape.group(), keys.data(), nullptr);
      const std::span<const float> all = tail.entry_scores(h / shape.group());
      for (int64_t i = 0; i < block_; ++i) received[i] = all[(first + i) * shape.group() + h % shape.group()];
      require_number(kernels::top_k(received.data(), block_, repr_, best.data()));
      std::vector<float> mean(static_cast<size_t>(dim));
      for (const int32_t i : best) {
        for (int64_t c = 0; c < dim; ++c) mean[c] += keys[(first + i) * dim + c];
      }
      for (float& number : mean) number /= static_cast<float>(repr_);
      memory.representatives.heads[h].append(mean);
    }
  }

  int64_t init_ = 128;
  int64_t local_ = 4096;
  int64_t block_ = 128;
  int64_t topk_ = 16;
  int64_t repr_ = 4;
  int64_t exec_ = 512;
  int64_t cached_ = 32;
  std::optional<double> total_;
  std::string tier_ = "host";
};

KVARENA_METHOD(InfLlm, Family::retrieval,
               {.name = "infllm",
                .title = "InfLLM",
                .summary = "Attends to a window and to a few blocks of the rest, all seen at one distance.",
                .paper = "arXiv:2402.04617, section 3"});

}  // namespace
}  // namespace kvarena
