#include "harness/cost_model/layer_offload.h"

#include <cmath>

namespace kvarena::cost_model {
namespace {

constexpr double kPairBytes = 2 * 2;  // a key's and a value's number

double model_bytes(const OffloadLoad& load) { return kWeightsAndActivations * static_cast<double>(load.weight_bytes); }

/// Numbers of one entry's keys in one layer, over all requests: R H D.
double entry_numbers(const OffloadLoad& load) {
  return static_cast<double>(load.requests) * static_cast<double>(load.kv_heads) * static_cast<double>(load.head_dim);
}

}  // namespace

double needed_bytes(const OffloadLoad& load, int64_t length, int64_t offloaded) {
  const auto whole = static_cast<double>((load.layers - offloaded + 1 + load.repeat) * length);
  const auto cut = static_cast<double>(offloaded * load.budget);
  return model_bytes(load) + kPairBytes * entry_numbers(load) * (whole + cut);
}

std::vector<int64_t> length_thresholds(const OffloadLoad& load) {
  const double room = static_cast<double>(load.memory_bytes) - model_bytes(load);
  std::vector<int64_t> thresholds;
  for (int64_t i = 0; i <= load.layers; ++i) {
    const double buffers = kPairBytes * static_cast<double>(i * load.budget) * entry_numbers(load);
    const double entry = kPairBytes * static_cast<double>(load.layers + 1 + load.repeat - i) * entry_numbers(load);
    thresholds.push_back(static_cast<int64_t>(std::floor((room - buffers) / entry)));
  }
  return thresholds;
}

void LayerOffload::advance(int64_t length, const std::function<void(int64_t layer)>& offload) {
  while (offloaded_ < layers() && length >= thresholds_[static_cast<size_t>(offloaded_)]) {
    offload(layers() - offloaded_ - 1);
    ++offloaded_;
  }
}

}  // namespace kvarena::cost_model
