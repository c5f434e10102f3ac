#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "harness/cache/entry_source.h"
#include "harness/method/entry_scores.h"
#include "harness/method/head_lists.h"
#include "harness/method/layer_view.h"
#include "harness/method/row_index.h"
#include "harness/storage/low_rank_segment.h"

namespace kvarena {
namespace {

using storage::KeyRotation;
using storage::LowRankSegment;

/// Landmarks of the chunks that may be chosen, and which chunks they are.
struct LandmarkIndex final : public LayerIndex, public EntrySource {
  explicit LandmarkIndex(const LedgerPtr& ledger) : rows(0, 1, DType::f32, ledger) {}

  uint64_t source = new_version();  // of the prompt's entries
  RowIndex rows;                    // [kv_heads][candidates, head_dim]
  HeadLists<int32_t> chunks;        // [kv_heads][candidates], ascending

  [[nodiscard]] uint64_t source_of(const Segment& /*shown*/) const override { return source; }
  [[nodiscard]] int64_t bytes() const override { return rows.bytes() + chunks.bytes(); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<LandmarkIndex>(ledger);
    for (const RowList& head : rows.heads) copy->rows.heads.push_back(head.clone(ledger));
    copy->chunks = HeadLists(chunks, ledger);
    return copy;
  }
};

/// Low-rank keys on the device, values on the host.  After the prompt
///   1. keys before rotation, [n, kv_heads * head_dim] over all heads of a layer, become U (S V) of rank r by SVD
///   2. the prompt is cut into chunks of 8; the last `local_chunks` whole ones and the rest stay as they are
///   3. a chunk's landmark is the mean of its rotated keys; the `outliers` chunks of a kv head whose keys agree least
///   with
///      theirs (smallest cosine of any) are kept exactly and are no candidates
/// and a step attends to the B / 8 chunks of
///   max over the group of softmax over landmarks of q.landmark / sqrt(d)
/// their keys restored from U (S V) and rotated, their values fetched; to outliers, the local part and all generated
/// entries beside B. Values come from the host's storage over its link while keys are restored; a pass of several
/// queries attends to everything, and all values come. The authors divide by sqrt(128) whatever the head, which is the
/// same for their models. Their code for throughput takes 24 outliers per 1024 of the budget and whole multiples of 8
/// chunks; this is their accuracy code. Prompts within the budget are left alone. The cache really holds the factors:
/// full keys are gone. Sun et al. 2024, arXiv:2410.21465, section 4; bytedance/ShadowKV, models/kv_cache.py.
class ShadowKv final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    budget_.parameters(p);
    p("rank", rank_).min(1).doc("of the keys of a layer, all heads together");
    p("chunk", chunk_).min(1).doc("entries that share a landmark and are chosen together");
    p("local_chunks", local_chunks_).min(0).doc("last chunks of the prompt, always attended");
    p("outliers", outliers_).min(0).doc("chunks of each kv head that are kept exactly and always attended");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    budget_.check(place, problems);
  }

  HookAccess reach() const override { return HookAccess::views; }

  void compress(LayerContext& layer, const LayerObservations& seen) const override {
    LayerCache& cache = layer.cache;
    const int64_t n = cache.tail().entries(0);
    const int64_t chunks = n / chunk_ - local_chunks_;
    if (budget_.unlimited() || cache.shape().window > 0 || n <= budget(layer) || chunks <= 0) return;
    const LayerView view(layer, &seen);
    const at::Tensor keys = view.keys().narrow(1, 0, chunks * chunk_).contiguous();  // [kv_heads, chunks * chunk, d]
    LowRankSegment::Parts parts = factors(view, n);
    parts.n = chunks * chunk_;
    parts.left.resize(static_cast<size_t>(parts.n * parts.rank));
    auto index = std::make_unique<LandmarkIndex>(cache.ledger());
    index->rows = RowIndex(view.kv_heads(), view.head_dim(), cache.shape().dtype, cache.ledger());
    parts.exact = landmarks(keys, *index, cache.ledger());
    KVARENA_ASSERT(layer.model != nullptr && layer.model->tiers != nullptr, "a machine without tiers");
    auto prompt = std::make_unique<LowRankSegment>(cache.tail(), parts, cache.ledger(), layer.model->tiers, Tier::host);
    layer.activity.traffic.offloaded_bytes += prompt->offloaded_bytes();
    cache.insert_before_tail(std::move(prompt));
    cache.tail().drop_front(parts.n);
    cache.index = std::move(index);
  }

  void select(LayerContext& layer, const LayerQueries& queries) const override {
    LayerCache& cache = layer.cache;
    const auto* index = dynamic_cast<const LandmarkIndex*>(cache.index.get());
    if (index == nullptr) return;
    const auto& prompt = static_cast<const LowRankSegment&>(*cache.segments().front());
    if (queries.q_len > 1) {
      cache.view =
          std::make_unique<ConcatView>(arrived(layer, prompt.fetch_all()), std::vector<const Segment*>(), cache.tail());
      return;
    }
    std::vector<std::vector<int32_t>> lists;
    for (int64_t head = 0; head < cache.shape().kv_heads; ++head) {
      lists.push_back(chosen(*index, cache.shape(), queries, head, budget(layer) / chunk_));
      const int64_t attended = static_cast<int64_t>(lists.back().size()) + prompt.exact().entries(head);
      layer.activity.entries_skipped += prompt.entries(head) - attended;
    }
    cache.view = std::make_unique<ConcatView>(arrived(layer, prompt.fetch(lists)),
                                              std::vector<const Segment*>{&prompt.exact()}, cache.tail());
  }

 private:
  /// Entries that were fetched, with their way counted.
  static std::unique_ptr<Segment> arrived(LayerContext& layer, LowRankSegment::Fetched fetched) {
    layer.activity.traffic += fetched.loaded;
    return std::move(fetched.entries);
  }

  [[nodiscard]] int64_t budget(const LayerContext& layer) const {
    return budget_.capacity(layer.prompt_tokens, layer.cache.shape(), layer.budgeted());
  }

  /// U and S V of the layer's keys without their rotation.
  [[nodiscard]] LowRankSegment::Parts factors(const LayerView& view, int64_t n) const {
    const Rotation& rotation = view.model().rotation_of(view.layer());
    LowRankSegment::Parts parts;
    parts.rotation =
        std::make_shared<KeyRotation>(KeyRotation{.inverse = rotation.inverse, .magnitude = rotation.magnitude});
    at::Tensor plain = view.keys().clone().contiguous();  // [kv_heads, n, d]
    auto* numbers = plain.mutable_data_ptr<float>();
    for (int64_t row = 0; row < view.kv_heads() * n; ++row) {
      parts.rotation->undo(numbers + row * view.head_dim(), row % n);
    }
    const at::Tensor joined = plain.transpose(0, 1).reshape({n, -1}).to(at::kDouble);  // [n, kv_heads * d]
    parts.rank = std::min({rank_, n, joined.size(1)});
    // By the eigenvectors of joined^T joined, which is much smaller: channels are few beside entries.
    const auto [squares, vectors] = at::linalg_eigh(joined.t().matmul(joined));  // ascending
    const at::Tensor s = squares.flip(0).narrow(0, 0, parts.rank).clamp_min(1e-30).sqrt();
    const at::Tensor v = vectors.flip(1).narrow(1, 0, parts.rank);  // [kv_heads * d, rank]
    const at::Tensor left = (joined.matmul(v) / s).to(at::kFloat).contiguous();
    const at::Tensor right = (s.unsqueeze(1) * v.t())
                                 .reshape({parts.rank, view.kv_heads(), view.head_dim()})
                                 .transpose(0, 1)
                                 .to(at::kFloat)
                                 .contiguous();
    parts.left.assign(left.const_data_ptr<float>(), left.const_data_ptr<float>() + left.numel());
    parts.right.assign(right.const_data_ptr<float>(), right.const_data_ptr<float>() + right.numel());
    return parts;
  }

  /// Fills the index from rotated keys [kv_heads, chunks * chunk, d]; returns the entries of the outliers.
  std::vector<std::vector<int32_t>> landmarks(const at::Tensor& keys, LandmarkIndex& index,
                                              const LedgerPtr& ledger) const {
    const int64_t heads = keys.size(0);
    const int64_t chunks = keys.size(1) / chunk_;
    const at::Tensor by_chunk = keys.view({heads, chunks, chunk_, keys.size(2)});
    const at::Tensor means = by_chunk.mean(2).contiguous();  // [kv_heads, chunks, d]
    const at::Tensor agreement =
        at::cosine_similarity(means.unsqueeze(2), by_chunk, /*dim=*/-1).amin(2).neg().contiguous();
    std::vector<std::vector<int32_t>> exact(static_cast<size_t>(heads));
    index.chunks = HeadLists<int32_t>(heads, ledger);
    for (int64_t head = 0; head < heads; ++head) {
      const float* row = agreement.const_data_ptr<float>() + head * chunks;
      const Candidates all{.first = 0, .last = chunks, .count = std::min(outliers_, chunks), .budget = 0};
      const auto apart = best_candidates({row, static_cast<size_t>(chunks)}, all, "shadowkv");
      for (const int32_t chunk : apart) append_chunk(exact[head], chunk);
      LedgerVector<int32_t>& rest = index.chunks[head];
      for (int32_t chunk = 0; chunk < chunks; ++chunk) {
        if (std::ranges::binary_search(apart, chunk)) continue;
        rest.push_back(chunk);
        const float* mean = means.const_data_ptr<float>() + (head * chunks + chunk) * keys.size(2);
        index.rows.heads[head].append({mean, static_cast<size_t>(keys.size(2))});
      }
    }
    return exact;
  }

  void append_chunk(std::vector<int32_t>& list, int32_t chunk) const {
    for (int64_t i = 0; i < chunk_; ++i) list.push_back(static_cast<int32_t>(chunk * chunk_ + i));
  }

  /// Entries of the best chunks of a kv head.
  [[nodiscard]] std::vector<int32_t> chosen(const LandmarkIndex& index, const LayerShape& shape,
                                            const LayerQueries& queries, int64_t head, int64_t wanted) const {
    const auto& chunks = index.chunks[head];
    const auto count = static_cast<int64_t>(chunks.size());
    if (count == 0) return {};
    std::vector<float> scores(static_cast<size_t>(shape.group() * count));
    const float* q = queries.q + head * shape.group() * shape.head_dim;
    index.rows.heads[head].score(q, shape.group(), shape.head_dim, scores);
    softmax_rows(scores, shape.group(), attention_scale(shape));
    for (int64_t row = 1; row < shape.group(); ++row) {
      for (int64_t i = 0; i < count; ++i) scores[i] = std::max(scores[i], scores[row * count + i]);
    }
    scores.resize(static_cast<size_t>(count));
    const Candidates all{.first = 0, .last = count, .count = std::min(wanted, count), .budget = 0};
    std::vector<int32_t> list;
    for (const int32_t best : best_candidates(scores, all, "shadowkv")) append_chunk(list, chunks[best]);
    return list;
  }

  Budget budget_;
  int64_t rank_ = 160;
  int64_t chunk_ = 8;
  int64_t local_chunks_ = 4;
  int64_t outliers_ = 48;
};

KVARENA_METHOD(ShadowKv, Family::retrieval,
               {.name = "shadowkv",
                .title = "ShadowKV",
                .summary = "Keeps keys as low-rank factors and values on the host, and attends to chosen chunks.",
                .paper = "arXiv:2410.21465, section 4"});

}  // namespace
}  // namespace kvarena
