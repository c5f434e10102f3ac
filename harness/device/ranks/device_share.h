#pragma once
// A rank's share of a product whose rows are divided, on its device.

#include <memory>
#include <vector>

#include "harness/device/device_weights.h"
#include "harness/device/ranks/exchange.h"
#include "harness/device/workspace.h"

namespace kvarena::device {

class DeviceShare {
 public:
  DeviceShare(const Share& share, std::unique_ptr<Exchange> exchange)
      : share_(share), inner_(static_cast<size_t>(share.ranks)), exchange_(std::move(exchange)) {}

  [[nodiscard]] Share of(int64_t rank) const { return {.rank = rank, .ranks = share_.ranks}; }
  [[nodiscard]] int64_t ranks() const { return share_.ranks; }
  [[nodiscard]] Exchange& exchange() { return *exchange_; }

  /// A rank's columns `from` [rows, its share of width], to their place in `to` [rows, width].
  void place(int64_t rank, const float* from, int64_t rows, int64_t width, float* to, kernels::CudaStream stream) const;
  /// The inner numbers of all ranks, [rows, size], from `in` [rows, hidden_size]: each output row of what follows needs
  /// them all, so that they go from every rank to every other.
  [[nodiscard]] const float* inner(const DeviceDense& weights, const float* in, int64_t rows,
                                   kernels::CudaStream stream);

 private:
  Share share_;
  int64_t moves_ = 0;
  Workspace gates_;                     // [rows, 2 * held]
  std::vector<Workspace> inner_;        // [ranks] of [rows, those of a rank]
  Workspace whole_;                     // [rows, size]
  std::unique_ptr<Exchange> exchange_;  // ended first: what is under way uses the memory above
};

}  // namespace kvarena::device
