#pragma once
// Weights made by a formula from a seed, a tensor's name and the element's number, so that no file has to hold them.
// tests/golden/architectures.py has the same formula.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/model/checkpoint.h"

namespace kvarena::testing {

using TensorShapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

/// Element i of a tensor, with u draw i of the stream of its name:
///   bytes    of names in _scales 122 + floor(4 u), in _blocks floor(256 u)
///   biases   0.4 (2 u - 1)
///   A_log    4 u - 5, decays of states that last
///   vectors  0.8 + 0.4 u
///   others   c / sqrt(columns) (2 u - 1), c = 6 for queries and keys, so that attention is far from uniform, else 2
class RandomCheckpoint final : public Checkpoint {
 public:
  RandomCheckpoint(const TensorShapes& shapes, uint64_t seed);

  [[nodiscard]] const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  [[nodiscard]] const std::filesystem::path& path() const override { return path_; }
  [[nodiscard]] std::vector<std::filesystem::path> files() const override { return {}; }
  [[nodiscard]] std::span<const std::byte> raw(std::string_view name) const override;

  /// Floats of the largest piece that was asked for at once.
  mutable int64_t largest_read = 0;

 private:
  [[nodiscard]] std::vector<std::byte> random_bytes(const TensorInfo& info) const;
  void convert_rows(size_t index, int64_t first, int64_t count, float* out) const override;

  uint64_t seed_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::vector<std::byte>> bytes_;  // of the tensors that are no floats
  std::filesystem::path path_ = "random checkpoint";
};

}  // namespace kvarena::testing
