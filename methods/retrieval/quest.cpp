#include <algorithm>
#include <limits>

#include "harness/core/error.h"
#include "harness/method/retriever.h"
#include "kernels/page_bounds/page_bounds.h"
#include "kernels/top_k/top_k.h"

namespace kvarena {
namespace {

constexpr int64_t kPage = kernels::kCell;  // entries a page

/// Smallest and largest key of each page, channel by channel.
struct PageIndex final : public LayerIndex {
  struct Head {
    explicit Head(const LedgerPtr& ledger)
        : low(LedgerAllocator<float>(ledger)), high(LedgerAllocator<float>(ledger)) {}
    LedgerVector<float> low;   // [pages, head_dim]
    LedgerVector<float> high;  // [pages, head_dim]
  };
  std::vector<Head> heads;  // [kv_heads]

  [[nodiscard]] int64_t bytes() const override {
    int64_t total = 0;
    for (const Head& head : heads)
      total += static_cast<int64_t>((head.low.capacity() + head.high.capacity()) * sizeof(float));
    return total;
  }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<PageIndex>();
    for (const Head& head : heads) {
      copy->heads.emplace_back(ledger);
      copy->heads.back().low.assign(head.low.begin(), head.low.end());
      copy->heads.back().high.assign(head.high.begin(), head.high.end());
    }
    return copy;
  }
};

/// Query-aware pages.  U[h,page] = sum over c of max(q_c min_c, q_c max_c) bounds every score of the page from above;
/// a step attends to the budget's worth of pages with the largest bounds, the newest page always among them (as the
/// authors' kernels do; their accuracy code does not force it), at least `min_pages`. The first two layers attend to
/// everything, and generated entries are paged like the prompt's. gqa = "max" selects one set for a kv head by the
/// largest bound of its query heads; "none" selects for each query head, as the authors' code, which was written for
/// models without groups.
/// Tang et al. 2024, arXiv:2406.10774, section 3.
class Quest final : public Retriever {
 public:
  void parameters(ParameterVisitor& p) override {
    p("min_pages", min_pages_).min(1).doc("pages of 16 entries selected at least");
    p("gqa", gqa_).one_of({"max", "none"}).doc("one selection a kv head by the group's maximum, or one a query head");
  }
  int64_t default_dense_layers() const override { return 2; }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    auto index = std::make_unique<PageIndex>();
    for (int64_t head = 0; head < shape.kv_heads; ++head) index->heads.emplace_back(ledger);
    return index;
  }

  void extend(LayerIndex& index, const EntrySegment& entries, int64_t end) const override {
    auto& pages = static_cast<PageIndex&>(index);
    const LayerShape& shape = entries.shape();
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      PageIndex::Head& bounds = pages.heads[head];
      const auto size = static_cast<size_t>(kernels::cells_for(end) * shape.head_dim);
      bounds.low.resize(size);
      bounds.high.resize(size);
      const kernels::Cells keys{.kind = kernels::CellKind::keys,
                                .dtype = shape.dtype,
                                .head_dim = shape.head_dim,
                                .data = const_cast<void*>(entries.run(head).keys)};
      kernels::update_page_bounds(keys, index.entries, end, {.low = bounds.low.data(), .high = bounds.high.data()});
    }
  }

  Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                   const Candidates& among) const override {
    const auto& pages = static_cast<const PageIndex&>(index);
    const LayerShape& shape = entries.shape();
    const int64_t count = kernels::cells_for(index.entries);
    const int64_t wanted = std::min(std::max(min_pages_, among.budget / kPage), count);
    std::vector<float> bounds(static_cast<size_t>(shape.group() * count));  // [group, pages]
    Selection selection;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const kernels::PageBounds head_bounds{.low = const_cast<float*>(pages.heads[head].low.data()),
                                            .high = const_cast<float*>(pages.heads[head].high.data())};
      kernels::page_scores(queries.q + head * shape.group() * shape.head_dim, shape.group(), shape.head_dim,
                           head_bounds, count, shape.head_dim, bounds.data(), count);
      if (gqa_ == "max") fold_group(bounds, shape.group(), count);
      for (int64_t row = 0; row < (gqa_ == "max" ? 1 : shape.group()); ++row) {
        const std::span<float> row_bounds(bounds.data() + row * count, static_cast<size_t>(count));
        // The newest page holds the query's own entry.
        if (among.generated) row_bounds.back() = std::numeric_limits<float>::infinity();
        selection.lists.push_back(best_pages(row_bounds, wanted, index.entries));
      }
    }
    return selection;
  }

 private:
  /// Row 0 becomes the maximum over all rows.
  static void fold_group(std::vector<float>& bounds, int64_t rows, int64_t pages) {
    for (int64_t row = 1; row < rows; ++row) {
      for (int64_t page = 0; page < pages; ++page) bounds[page] = std::max(bounds[page], bounds[row * pages + page]);
    }
  }

  /// Entries of the best pages, ascending.
  static std::vector<int32_t> best_pages(std::span<const float> bounds, int64_t wanted, int64_t entries) {
    std::vector<int32_t> pages(static_cast<size_t>(wanted));
    const int64_t found = kernels::top_k(bounds.data(), static_cast<int64_t>(bounds.size()), wanted, pages.data());
    if (found < 0) fail({.place = "quest", .found = "a page bound that is not a number", .expected = "finite keys"});
    std::vector<int32_t> selected;
    for (const int32_t page : pages) {
      const int64_t end = std::min<int64_t>((page + 1) * kPage, entries);
      for (int64_t i = page * kPage; i < end; ++i) selected.push_back(static_cast<int32_t>(i));
    }
    return selected;
  }

  int64_t min_pages_ = 3;
  std::string gqa_ = "max";
};

KVARENA_RETRIEVER(Quest, {.name = "quest",
                          .title = "Quest",
                          .summary = "Attends to the pages whose key bounds promise the largest scores.",
                          .paper = "arXiv:2406.10774, section 3"});

}  // namespace
}  // namespace kvarena
