#pragma once
// Packs a checkpoint's tensors into matrices, each checked against the shape that the config implies.

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/model/checkpoint.h"
#include "harness/model/weights.h"
#include "kernels/matmul/matmul.h"

namespace kvarena {

/// Rows of a matrix that one tensor fills. `place` says where each of its rows goes; null: in order.
struct TensorRows {
  std::string name;  // without ".weight" or ".bias"
  int64_t rows = 0;
  std::function<int64_t(int64_t row)> place = nullptr;
};

/// Remembers which tensors were read, so that those nobody asked for can be named.
class WeightLoader {
 public:
  /// Without `dtype` rows keep the form in which they are stored. `arithmetic` is that of matrices in bf16.
  WeightLoader(const Checkpoint& checkpoint, std::optional<kernels::DType> dtype, kernels::Arithmetic arithmetic)
      : checkpoint_(&checkpoint), dtype_(dtype), arithmetic_(arithmetic) {}

  [[nodiscard]] bool has(const std::string& name) const { return checkpoint_->find(name) != nullptr; }
  /// Marks as read a tensor that repeats another one's content.
  void skip(const std::string& name) { read_.insert(name); }
  [[nodiscard]] std::vector<float> vector(const std::string& name, int64_t size);
  /// The form that rows of a tensor are packed in.
  [[nodiscard]] kernels::WeightForm form(const std::string& name) const;
  /// A matrix [n, k] in float32.
  [[nodiscard]] kernels::PackedMatrix matrix_f32(const std::string& name, int64_t n, int64_t k);
  /// Stacks tensors [rows, k], with their biases or without: a matrix of neighbours of one form.
  [[nodiscard]] Projection stacked(const std::vector<TensorRows>& parts, int64_t k, bool bias);
  /// Rows first .. first+count-1 of a tensor of shape `shape`, as they are.
  [[nodiscard]] std::vector<float> rows(const std::string& name, const std::vector<int64_t>& shape, int64_t first,
                                        int64_t count);
  /// `heads` matrices [n, k]; `make_head` gives the values of a head.
  [[nodiscard]] HeadProjections of_heads(int64_t heads, int64_t n, int64_t k, kernels::DType dtype,
                                         const std::function<std::vector<float>(int64_t head)>& make_head);

  /// Bytes of all matrices loaded so far.
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  /// Numbers of all matrices loaded so far.
  [[nodiscard]] int64_t numbers() const { return numbers_; }
  /// Throws UserError naming a tensor that starts with `prefix` and was never read.
  void expect_all_read(std::string_view prefix, const std::string& architecture) const;

 private:
  void expect(const std::string& name, const std::vector<int64_t>& shape);
  [[nodiscard]] kernels::PackedMatrix make(int64_t n, int64_t k, kernels::WeightForm form);
  /// Reads `part`, whose name is the whole one here, to rows begin .. of the packed matrix.
  void fill(kernels::PackedMatrix& packed, int64_t begin, const TensorRows& part, int64_t k) const;

  const Checkpoint* checkpoint_;
  std::optional<kernels::DType> dtype_;
  kernels::Arithmetic arithmetic_;
  std::set<std::string, std::less<>> read_;
  int64_t bytes_ = 0, numbers_ = 0;
};

}  // namespace kvarena
