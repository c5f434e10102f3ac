#pragma once
// From a checkpoint's tensors to packed matrices, each checked against the shape that the config implies.

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "harness/model/checkpoint.h"
#include "kernels/matmul/matmul.h"

namespace kvarena {

/// Rows of a packed matrix that one tensor fills. `place` says where each of its rows goes; null: in order.
struct TensorRows {
  std::string name;
  int64_t rows = 0;
  std::function<int64_t(int64_t row)> place = nullptr;
};

/// Remembers what was read, so that what nobody asked for can be named.
class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, kernels::DType dtype) : checkpoint_(&checkpoint), dtype_(dtype) {}

  [[nodiscard]] bool has(const std::string& name) const { return checkpoint_->find(name) != nullptr; }
  /// A tensor that says again what another one says.
  void skip(const std::string& name) { read_.insert(name); }
  [[nodiscard]] std::vector<float> vector(const std::string& name, int64_t size);
  /// [n, k] in the loader's dtype.
  [[nodiscard]] kernels::PackedMatrix matrix(const std::string& name, int64_t n, int64_t k);
  [[nodiscard]] kernels::PackedMatrix matrix_f32(const std::string& name, int64_t n, int64_t k);
  /// Tensors [rows, k] under each other.
  [[nodiscard]] kernels::PackedMatrix stacked(const std::vector<TensorRows>& parts, int64_t k);
  /// Rows first .. first+count-1 of a tensor of shape `shape`, as they are ...
  [[nodiscard]] std::vector<float> rows(const std::string& name, const std::vector<int64_t>& shape, int64_t first,
                                        int64_t count);
  /// ... and packed from there: values [n, k].
  [[nodiscard]] kernels::PackedMatrix pack(const std::vector<float>& values, int64_t n, int64_t k);

  /// Of all matrices made so far.
  [[nodiscard]] int64_t packed_bytes() const { return packed_bytes_; }
  /// Throws UserError naming a tensor that starts with `prefix` and was never read.
  void expect_all_read(std::string_view prefix, const std::string& architecture) const;

 private:
  void expect(const std::string& name, const std::vector<int64_t>& shape);
  [[nodiscard]] kernels::PackedMatrix make(int64_t n, int64_t k, kernels::DType dtype);
  void fill(kernels::PackedMatrix& packed, int64_t begin, const TensorRows& part, int64_t k) const;

  const Checkpoint* checkpoint_;
  kernels::DType dtype_;
  std::set<std::string, std::less<>> read_;
  int64_t packed_bytes_ = 0;
};

}  // namespace kvarena
