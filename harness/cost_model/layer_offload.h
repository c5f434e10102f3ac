#pragma once
// Number of layers whose caches must leave the accelerator as sequences grow: thresholds before the run, one layer at a
// time during it. Xu et al. 2025, arXiv:2512.00722, section 6 (Eqs. 6 to 8, Algorithms 1 and 2).

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace kvarena::cost_model {

/// Bytes of weights and activations over those of weights, section 6.2.
inline constexpr double kWeightsAndActivations = 1.3;

/// Inputs of the memory model (the paper's Table 1). Keys and values take 2 bytes a number.
struct OffloadLoad {
  int64_t memory_bytes = 0;  // Mem_GPU
  int64_t weight_bytes = 0;  // M_O + M_D: the model and what retrieves for it
  int64_t requests = 1;      // R, all of the same length
  int64_t layers = 0;        // L
  int64_t kv_heads = 0;      // H
  int64_t head_dim = 0;      // D
  /// alpha: layers' worth of room for keys and values repeated for their query heads; the paper takes the group.
  int64_t repeat = 0;
  int64_t budget = 0;  // B, entries of an offloaded layer that lie on the accelerator
};

/// Eq. 7, and Eq. 6 with offloaded = 0: 1.3 weights + 4 R H D ((L - offloaded + 1 + alpha) S + offloaded B), in bytes.
[[nodiscard]] double needed_bytes(const OffloadLoad& load, int64_t length, int64_t offloaded);

/// Algorithm 1: S_0 .. S_L, the longest sequences with 0 .. L layers offloaded (the last layers); below 0 where not
/// even the weights fit. The budgets of offloaded layers cost 4 i B R H D, which solves Eq. 7; Algorithm 1 as printed
/// charges a quarter of that, so more is placed than fits.
[[nodiscard]] std::vector<int64_t> length_thresholds(const OffloadLoad& load);

/// Algorithm 2: offloads layers as the sequence grows.
class LayerOffload {
 public:
  /// `thresholds` as length_thresholds() gives them, one more than there are layers.
  explicit LayerOffload(std::vector<int64_t> thresholds) : thresholds_(std::move(thresholds)) {}

  /// Called before each step: calls `offload` for every layer that leaves at `length`, last layer first.
  void advance(int64_t length, const std::function<void(int64_t layer)>& offload);
  [[nodiscard]] int64_t layers() const { return static_cast<int64_t>(thresholds_.size()) - 1; }
  /// L_CPU, the number of offloaded layers. Layers never come back.
  [[nodiscard]] int64_t offloaded() const { return offloaded_; }
  [[nodiscard]] bool is_offloaded(int64_t layer) const { return layer >= layers() - offloaded_; }

 private:
  std::vector<int64_t> thresholds_;
  int64_t offloaded_ = 0;
};

}  // namespace kvarena::cost_model
