#include "harness/device/device_keys.h"

#include <algorithm>

#include "harness/device/device_errors.h"
#include "kernels/cell_scores/cell_scores_cuda.h"
#include "kernels/cells/cells_cuda.h"
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/top_k/top_k_cuda.h"

namespace kvarena::device {
namespace {

/// Does the work on the searcher's device, in turn.
template <typename Work>
auto in_turn(KeySearcher& searcher, const Work& work) {
  return on_device(
      [&] {
        const std::scoped_lock lock(searcher.turn);
        const kernels::CudaDeviceScope there(searcher.device);
        return work();
      },
      [] {});
}

/// Copies numbers, which are taken at once, to memory that grows.
const float* brought(std::span<const float> numbers, kernels::CudaBuffer& to, kernels::CudaStream stream) {
  const auto bytes = static_cast<int64_t>(numbers.size_bytes());
  to.grow(bytes);
  kernels::cuda_upload(to.data(), numbers.data(), bytes, stream);
  return static_cast<const float*>(to.data());
}

}  // namespace

DeviceKeys::DeviceKeys(std::shared_ptr<KeySearcher> searcher, int64_t kv_heads, int64_t head_dim, LedgerPtr ledger)
    : searcher_(std::move(searcher)),
      head_dim_(head_dim),
      ledger_(std::move(ledger)),
      heads_(static_cast<size_t>(kv_heads)) {}

int64_t DeviceKeys::bytes() const {
  int64_t total = 0;
  for (const auto& head : heads_) total += head ? head->bytes() : 0;
  return total;
}

kernels::Cells DeviceKeys::cells(int64_t kv_head) const {
  return {.kind = kernels::CellKind::keys,
          .dtype = DType::bf16,
          .head_dim = head_dim_,
          .data = heads_[static_cast<size_t>(kv_head)]->data()};
}

void DeviceKeys::reserve(int64_t tokens) {
  const int64_t needed = kernels::cell_bytes(tokens, head_dim_, DType::bf16);
  const int64_t held = kernels::cell_bytes(count_, head_dim_, DType::bf16);
  for (auto& head : heads_) {
    if (head && head->bytes() >= needed) continue;
    auto grown = std::make_unique<Memory>(*searcher_, ledger_, std::max(needed, 2 * held));
    if (head) kernels::cuda_copy(grown->data(), head->data(), held, searcher_->queue.stream());
    head = std::move(grown);
  }
}

void DeviceKeys::append(std::span<const float> rows) {
  in_turn(*searcher_, [&] {
    const int64_t stride = std::ssize(heads_) * head_dim_, tokens = std::ssize(rows) / stride;
    const kernels::CudaStream stream = searcher_->queue.stream();
    reserve(count_ + tokens);
    const float* const from = brought(rows, searcher_->rows, stream);
    std::vector<kernels::RowStore> stores;
    for (int64_t head = 0; head < std::ssize(heads_); ++head) {
      stores.push_back({.to = cells(head),
                        .position = count_,
                        .count = tokens,
                        .rows = from + head * head_dim_,
                        .row_stride = stride});
    }
    kernels::store_rows_cuda(stores, searcher_->scratch, stream);
    count_ += tokens;
  });
}

std::vector<std::vector<int32_t>> DeviceKeys::search(const KeySearch& what) const {
  return in_turn(*searcher_, [&] {
    const int64_t q_heads = std::ssize(what.q) / head_dim_, group = q_heads / std::ssize(heads_);
    const int64_t rows = q_heads / what.lists;
    const kernels::CudaStream stream = searcher_->queue.stream();
    const float* const q = brought(what.q, searcher_->rows, stream);
    searcher_->scores.grow(q_heads * count_ * int64_t{sizeof(float)});
    auto* const scores = static_cast<float*>(searcher_->scores.data());
    std::vector<kernels::CellScoring> scorings;
    for (int64_t head = 0; head < std::ssize(heads_); ++head) {
      scorings.push_back({.q = q + head * group * head_dim_,
                          .rows = group,
                          .q_stride = head_dim_,
                          .keys = cells(head),
                          .entries = count_,
                          .scores = scores + head * group * count_,
                          .score_stride = count_});
    }
    kernels::cell_scores_cuda(scorings, searcher_->scratch, stream);
    kernels::softmax_cuda(scores, q_heads, count_, count_, what.scale, stream);
    kernels::max_rows_cuda(scores, what.lists, rows, what.among, count_, stream);

    std::vector<int32_t> found(static_cast<size_t>(what.lists * (what.count + 1)));
    const auto bytes = std::ssize(found) * int64_t{sizeof(int32_t)};
    searcher_->lists.grow(bytes);
    auto* const lists = static_cast<int32_t*>(searcher_->lists.data());
    kernels::top_k_rows_cuda(scores, what.lists, what.among, rows * count_, what.count, lists,
                             lists + what.lists * what.count, stream);
    kernels::cuda_download(found.data(), lists, bytes, stream);
    kernels::cuda_synchronize(stream);

    std::vector<std::vector<int32_t>> chosen;
    if (std::ranges::count(std::span(found).last(static_cast<size_t>(what.lists)), -1) > 0) return chosen;
    for (auto list = found.begin(); std::ssize(chosen) < what.lists; list += what.count) {
      chosen.emplace_back(list, list + what.count);
    }
    return chosen;
  });
}

std::unique_ptr<SearchedKeys> DeviceKeys::clone(const LedgerPtr& ledger) const {
  return in_turn(*searcher_, [&] {
    auto copy = std::make_unique<DeviceKeys>(searcher_, std::ssize(heads_), head_dim_, ledger);
    if (count_ == 0) return copy;
    copy->reserve(count_);
    copy->count_ = count_;
    for (size_t head = 0; head < heads_.size(); ++head) {
      const int64_t held = kernels::cell_bytes(count_, head_dim_, DType::bf16);
      kernels::cuda_copy(copy->heads_[head]->data(), heads_[head]->data(), held, searcher_->queue.stream());
    }
    return copy;
  });
}

}  // namespace kvarena::device
