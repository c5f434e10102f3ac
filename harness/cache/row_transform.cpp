#include "harness/cache/row_transform.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "harness/core/random.h"
#include "kernels/hadamard/hadamard.h"

namespace kvarena {
namespace {

class Hadamard final : public RowTransform {
 public:
  Hadamard(int64_t head_dim, std::optional<uint64_t> sign_seed, int64_t run)
      : head_dim_(head_dim),
        block_(run == 0 ? head_dim & -head_dim : run),
        signs_(static_cast<size_t>(head_dim), 1.0F) {
    if (!sign_seed) return;
    const RandomStream stream(*sign_seed, "hadamard signs");
    for (size_t i = 0; i < signs_.size(); ++i) signs_[i] = stream.below(2, i) == 0 ? 1.0F : -1.0F;
  }

  void apply(int64_t /*kv_head*/, float* rows, int64_t count) const override {
    flip(rows, count);
    rotate(rows, count);
  }
  void undo(int64_t /*kv_head*/, float* rows, int64_t count) const override {
    rotate(rows, count);
    flip(rows, count);
  }
  void apply_to_queries(int64_t kv_head, float* rows, int64_t count) const override { apply(kv_head, rows, count); }

 private:
  void rotate(float* rows, int64_t count) const {
    kernels::hadamard(rows, count * (head_dim_ / block_), block_, block_);
  }
  void flip(float* rows, int64_t count) const {
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < head_dim_; ++c) rows[r * head_dim_ + c] *= signs_[c];
    }
  }

  int64_t head_dim_;
  int64_t block_;
  std::vector<float> signs_;
};

class DenseRotation final : public RowTransform {
 public:
  DenseRotation(int64_t head_dim, uint64_t seed) : d_(head_dim) {
    // Gram-Schmidt, twice, on Gaussian rows: R's diagonal is positive by construction.
    const RandomStream stream(seed, "rotation");
    std::vector<double> q(static_cast<size_t>(d_ * d_));
    for (size_t i = 0; i < q.size(); ++i) {
      const double radius = std::sqrt(-2 * std::log1p(-stream.uniform(2 * i)));
      q[i] = radius * std::cos(2 * std::numbers::pi * stream.uniform(2 * i + 1));
    }
    for (int64_t r = 0; r < d_; ++r) {
      double* row = &q[r * d_];
      for (int64_t pass = 0; pass < 2; ++pass) {
        for (int64_t before = 0; before < r; ++before) {
          const double* other = &q[before * d_];
          double dot = 0;
          for (int64_t c = 0; c < d_; ++c) dot += row[c] * other[c];
          for (int64_t c = 0; c < d_; ++c) row[c] -= dot * other[c];
        }
      }
      double squares = 0;
      for (int64_t c = 0; c < d_; ++c) squares += row[c] * row[c];
      for (int64_t c = 0; c < d_; ++c) row[c] /= std::sqrt(squares);
    }
    matrix_.assign(q.begin(), q.end());
    transposed_.resize(matrix_.size());
    for (int64_t r = 0; r < d_; ++r) {
      for (int64_t c = 0; c < d_; ++c) transposed_[c * d_ + r] = matrix_[r * d_ + c];
    }
  }

  void apply(int64_t /*kv_head*/, float* rows, int64_t count) const override { multiply(transposed_, rows, count); }
  void undo(int64_t /*kv_head*/, float* rows, int64_t count) const override { multiply(matrix_, rows, count); }
  void apply_to_queries(int64_t kv_head, float* rows, int64_t count) const override { apply(kv_head, rows, count); }

 private:
  /// Each row times `right` [d, d], sums over rows of `right` ascending.
  void multiply(const std::vector<float>& right, float* rows, int64_t count) const {
    std::vector<float> product(static_cast<size_t>(d_));
    for (int64_t r = 0; r < count; ++r) {
      float* row = rows + r * d_;
      std::ranges::fill(product, 0.0F);
      for (int64_t k = 0; k < d_; ++k) {
        for (int64_t c = 0; c < d_; ++c) product[c] += row[k] * right[k * d_ + c];
      }
      std::ranges::copy(product, row);
    }
  }

  int64_t d_;
  std::vector<float> matrix_;      // [d, d], orthonormal rows
  std::vector<float> transposed_;  // [d, d]
};

class ChannelScaling final : public RowTransform {
 public:
  ChannelScaling(int64_t head_dim, std::span<const float> factors, const LedgerPtr& ledger)
      : d_(head_dim),
        factors_(factors.begin(), factors.end(), LedgerAllocator<float>(ledger)),
        inverse_(LedgerAllocator<float>(ledger)) {
    inverse_.reserve(factors_.size());
    for (const float f : factors_) inverse_.push_back(1 / f);
  }

  void apply(int64_t kv_head, float* rows, int64_t count) const override { scale(inverse_, kv_head, rows, count); }
  void undo(int64_t kv_head, float* rows, int64_t count) const override { scale(factors_, kv_head, rows, count); }
  void apply_to_queries(int64_t kv_head, float* rows, int64_t count) const override {
    scale(factors_, kv_head, rows, count);
  }
  [[nodiscard]] int64_t bytes() const override {
    return static_cast<int64_t>((factors_.capacity() + inverse_.capacity()) * sizeof(float));
  }
  [[nodiscard]] RowTransformPtr clone(const LedgerPtr& ledger) const override {
    return std::make_shared<ChannelScaling>(d_, factors_, ledger);
  }

 private:
  void scale(const LedgerVector<float>& by, int64_t kv_head, float* rows, int64_t count) const {
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < d_; ++c) rows[r * d_ + c] *= by[kv_head * d_ + c];
    }
  }

  int64_t d_;
  LedgerVector<float> factors_;  // [kv_heads, head_dim]
  LedgerVector<float> inverse_;
};

}  // namespace

RowTransformPtr hadamard_transform(int64_t head_dim, std::optional<uint64_t> sign_seed, int64_t run) {
  return std::make_shared<Hadamard>(head_dim, sign_seed, run);
}

RowTransformPtr random_rotation(int64_t head_dim, uint64_t seed) {
  return std::make_shared<DenseRotation>(head_dim, seed);
}

RowTransformPtr channel_scaling(int64_t head_dim, std::span<const float> factors, const LedgerPtr& ledger) {
  return std::make_shared<ChannelScaling>(head_dim, factors, ledger);
}

}  // namespace kvarena
