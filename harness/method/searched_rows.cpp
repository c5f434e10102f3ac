#include "harness/method/searched_rows.h"

#include <algorithm>

#include "harness/method/row_index.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/top_k/top_k.h"

namespace kvarena {
namespace {

class SearchedRows final : public SearchedKeys {
 public:
  explicit SearchedRows(std::vector<RowList> heads) : heads_(std::move(heads)) {}

  void append(std::span<const float> rows) override {
    const int64_t d = heads_.front().channels(), kv_heads = std::ssize(heads_);
    const int64_t tokens = std::ssize(rows) / (kv_heads * d);
    std::vector<float> own(static_cast<size_t>(tokens * d));
    for (int64_t head = 0; head < kv_heads; ++head) {
      for (int64_t i = 0; i < tokens; ++i) std::copy_n(rows.data() + (i * kv_heads + head) * d, d, own.data() + i * d);
      heads_[head].append(own);
    }
  }

  [[nodiscard]] std::vector<std::vector<int32_t>> search(const KeySearch& what) const override {
    const int64_t n = count();
    std::vector<float> p = probabilities(what);
    const int64_t rows = std::ssize(p) / n / what.lists;
    std::vector<std::vector<int32_t>> found(static_cast<size_t>(what.lists));
    for (int64_t list = 0; list < what.lists; ++list) {
      float* best = p.data() + list * rows * n;
      for (int64_t row = 1; row < rows; ++row) {
        for (int64_t i = 0; i < what.among; ++i) best[i] = std::max(best[i], best[row * n + i]);
      }
      found[list].resize(static_cast<size_t>(what.count));
      if (kernels::top_k(best, what.among, what.count, found[list].data()) < 0) return {};
    }
    return found;
  }

  [[nodiscard]] int64_t count() const override { return heads_.front().count(); }
  [[nodiscard]] int64_t bytes() const override {
    int64_t total = 0;
    for (const RowList& head : heads_) total += head.bytes();
    return total;
  }
  [[nodiscard]] std::unique_ptr<SearchedKeys> clone(const LedgerPtr& ledger) const override {
    std::vector<RowList> copies;
    for (const RowList& head : heads_) copies.push_back(head.clone(ledger));
    return std::make_unique<SearchedRows>(std::move(copies));
  }

 private:
  /// [q_heads, count()].
  [[nodiscard]] std::vector<float> probabilities(const KeySearch& what) const {
    const int64_t n = count(), d = heads_.front().channels(), kv_heads = std::ssize(heads_);
    const int64_t q_heads = std::ssize(what.q) / d, group = q_heads / kv_heads;
    std::vector<float> p(static_cast<size_t>(q_heads * n));
    for (int64_t head = 0; head < kv_heads; ++head) {
      heads_[head].score(what.q.data() + head * group * d, group, d,
                         {p.data() + head * group * n, static_cast<size_t>(group * n)});
    }
    kernels::softmax(p.data(), q_heads, n, n, what.scale);
    return p;
  }

  std::vector<RowList> heads_;  // [kv_heads]
};

}  // namespace

std::unique_ptr<SearchedKeys> searched_rows(int64_t kv_heads, int64_t head_dim, const LedgerPtr& ledger) {
  std::vector<RowList> heads;
  for (int64_t head = 0; head < kv_heads; ++head) heads.emplace_back(head_dim, DType::bf16, ledger);
  return std::make_unique<SearchedRows>(std::move(heads));
}

}  // namespace kvarena
