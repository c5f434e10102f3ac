#include "harness/method/prompt_statistic.h"

#include "kernels/cell_scores/cell_scores.h"
#include "kernels/common/parallel.h"

namespace kvarena {
namespace {

/// Queries whose scores are computed together, so that keys are read once for all of them.
constexpr int64_t kTogether = 16;

/// One kv head's queries of a pass.
class HeadQueries {
 public:
  HeadQueries(const EntrySegment& entries, const LayerQueries& queries, const float* lse, int64_t kv_head)
      : entries_(entries), shape_(entries.shape()), queries_(queries), lse_(lse), kv_head_(kv_head) {}

  template <class Use>
  void each(int64_t layer, const Use& use) const {
    static thread_local kernels::Scratch<float> rows;
    static thread_local kernels::Scratch<float> products;
    const int64_t group = shape_.group();
    const int64_t before = entries_.entries(kv_head_) - queries_.q_len;
    for (int64_t t = 0; t < queries_.q_len; t += kTogether) {
      const int64_t some = std::min(kTogether, queries_.q_len - t);
      const int64_t seen = before + t + some;  // by the last of them
      float* scores = products.get(some * group * seen);
      score(t, some, seen, rows.get(some * group * shape_.head_dim), scores);
      for (int64_t i = 0; i < some; ++i) {
        const int64_t own = before + t + i + 1;
        const int64_t first = shape_.window > 0 ? std::max<int64_t>(0, own - shape_.window) : 0;
        use(QueryScores{.layer = layer,
                        .kv_head = kv_head_,
                        .position = queries_.position + t + i,
                        .group = group,
                        .first = first,
                        .seen = own - first,
                        .scores = scores + i * group * seen + first,
                        .stride = seen,
                        .lse = lse_ + (t + i) * shape_.q_heads + kv_head_ * group});
      }
    }
  }

 private:
  /// scores [some * group, seen] of queries t .. t+some-1.
  void score(int64_t t, int64_t some, int64_t seen, float* rows, float* scores) const {
    const int64_t group = shape_.group();
    const int64_t width = group * shape_.head_dim;
    for (int64_t i = 0; i < some; ++i) {
      std::copy_n(queries_.q + (t + i) * queries_.q_stride + kv_head_ * width, width, rows + i * width);
    }
    const kernels::Cells keys{.kind = kernels::CellKind::keys,
                              .dtype = shape_.dtype,
                              .head_dim = shape_.head_dim,
                              .data = const_cast<void*>(entries_.run(kv_head_).keys)};
    kernels::cell_scores(rows, some * group, shape_.head_dim, keys, seen, scores, seen);
    const float scale = attention_scale(shape_);
    for (int64_t i = 0; i < some * group * seen; ++i) scores[i] *= scale;
  }

  const EntrySegment& entries_;
  const LayerShape& shape_;
  const LayerQueries& queries_;
  const float* lse_;
  int64_t kv_head_;
};

}  // namespace

void gather(const PromptStatistics& statistics, int64_t layer, const EntrySegment& entries, const LayerQueries& queries,
            const float* lse, int64_t n, std::vector<GatheredStatistic>& gathered) {
  const int64_t heads = entries.shape().kv_heads;
  for (size_t i = gathered.size(); i < statistics.size(); ++i) {
    const int64_t width = statistics[i]->width();
    gathered.push_back({.id = statistics[i]->id(), .width = width, .sums = std::vector<float>(heads * n * width)});
  }
  kernels::parallel_for(heads, [&](int64_t head) {
    HeadQueries(entries, queries, lse, head).each(layer, [&](const QueryScores& query) {
      for (size_t i = 0; i < statistics.size(); ++i) {
        const auto size = static_cast<size_t>(n * gathered[i].width);
        statistics[i]->add(query, std::span(gathered[i].sums).subspan(static_cast<size_t>(head) * size, size));
      }
    });
  });
}

}  // namespace kvarena
