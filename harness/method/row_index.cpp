#include "harness/method/row_index.h"

#include "kernels/cell_scores/cell_scores.h"

namespace kvarena {

RowList::RowList(int64_t channels, DType dtype, const LedgerPtr& ledger)
    : channels_(channels), dtype_(dtype), cells_(LedgerAllocator<std::byte>(ledger)) {}

void RowList::append(std::span<const float> rows) {
  const int64_t added = static_cast<int64_t>(rows.size()) / channels_;
  const int64_t cells = kernels::cells_for(count_ + added);
  cells_.resize(static_cast<size_t>(cells * kernels::kCell * channels_ * kernels::size_of(dtype_)));
  for (int64_t r = 0; r < added; ++r) {
    for (int64_t c = 0; c < channels_; ++c) {
      const int64_t at = kernels::cell_offset(kernels::CellKind::keys, channels_, count_ + r, c);
      kernels::store_element(cells_.data(), dtype_, at, rows[static_cast<size_t>(r * channels_ + c)]);
    }
  }
  count_ += added;
}

void RowList::score(const float* q, int64_t rows, int64_t q_stride, std::span<float> scores) const {
  const kernels::Cells keys{.kind = kernels::CellKind::keys,
                            .dtype = dtype_,
                            .head_dim = channels_,
                            .data = const_cast<std::byte*>(cells_.data())};
  kernels::cell_scores(q, rows, q_stride, keys, count_, scores.data(), count_);
}

std::vector<float> RowList::row(int64_t row) const {
  std::vector<float> numbers;
  for (int64_t c = 0; c < channels_; ++c) {
    const int64_t at = kernels::cell_offset(kernels::CellKind::keys, channels_, row, c);
    numbers.push_back(kernels::load_element(cells_.data(), dtype_, at));
  }
  return numbers;
}

RowList RowList::clone(const LedgerPtr& ledger) const {
  RowList copy(channels_, dtype_, ledger);
  copy.count_ = count_;
  copy.cells_.assign(cells_.begin(), cells_.end());
  return copy;
}

RowIndex::RowIndex(int64_t kv_heads, int64_t channels, DType dtype, const LedgerPtr& ledger) {
  for (int64_t head = 0; head < kv_heads; ++head) heads.emplace_back(channels, dtype, ledger);
}

int64_t RowIndex::bytes() const {
  int64_t total = 0;
  for (const RowList& head : heads) total += head.bytes();
  return total;
}

std::unique_ptr<LayerIndex> RowIndex::clone(const LedgerPtr& ledger) const {
  auto copy = std::make_unique<RowIndex>(0, 0, DType::f32, ledger);
  for (const RowList& head : heads) copy->heads.push_back(head.clone(ledger));
  return copy;
}

}  // namespace kvarena
