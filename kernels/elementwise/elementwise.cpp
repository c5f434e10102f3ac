#include "kernels/elementwise/elementwise.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/parallel.h"
#include "kernels/elementwise/elementwise_paths.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kWorthThreads = 32 * 1024;  // elements

const ElementwiseTable& table() {
  const ElementwiseTable* fast = KVARENA_ACTIVE_TABLE(elementwise_table);
  return fast != nullptr ? *fast : elementwise_reference;
}

template <class Body>
void for_rows(int64_t rows, int64_t n, const Body& body) {
  if (rows * n < kWorthThreads) {
    for (int64_t r = 0; r < rows; ++r) body(r);
    return;
  }
  constexpr int64_t kBlock = 8;
  parallel_for((rows + kBlock - 1) / kBlock, [&](int64_t block) {
    for (int64_t r = block * kBlock; r < std::min(rows, (block + 1) * kBlock); ++r) body(r);
  });
}

template <class Row>
void gated_mul(const GatedMulArgs& args, Row row) {
  for_rows(args.rows, args.n, [&](int64_t r) {
    row(args.gate + r * args.gate_stride, args.up + r * args.up_stride, args.out + r * args.out_stride, args.n);
  });
}

}  // namespace

void rms_norm(const RmsNormArgs& args) {
  const ElementwiseTable& use = table();
  for_rows(args.rows, args.n, [&](int64_t r) {
    use.rms_norm(args.x + r * args.x_stride, args.weight, args.y + r * args.y_stride, args.n, args.eps);
  });
}

void silu_mul(const GatedMulArgs& args) { gated_mul(args, table().silu_mul); }
void gelu_mul(const GatedMulArgs& args) { gated_mul(args, table().gelu_mul); }
void sigmoid_mul(const GatedMulArgs& args) { gated_mul(args, table().sigmoid_mul); }

void clamped_mul(const GatedMulArgs& args, float limit) {
  gated_mul(args, [limit](const float* gate, const float* up, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const float g = std::min(gate[i], limit), u = std::clamp(up[i], -limit, limit);
      out[i] = g / (1 + std::exp(-1.702f * g)) * (u + 1);
    }
  });
}

void softmax(float* x, int64_t rows, int64_t n, int64_t stride, float scale, const float* sinks) {
  const ElementwiseTable& use = table();
  for_rows(rows, n, [&](int64_t r) { use.softmax(x + r * stride, n, scale, sinks == nullptr ? nullptr : sinks + r); });
}

void scale_rows(float* x, int64_t rows, int64_t n, int64_t stride, float factor) {
  for_rows(rows, n, [&](int64_t r) {
    for (int64_t i = 0; i < n; ++i) x[r * stride + i] *= factor;
  });
}

void add_into(float* x, const float* y, int64_t count) {
  const ElementwiseTable& use = table();
  constexpr int64_t kBlock = 4096;
  for_rows((count + kBlock - 1) / kBlock, kBlock, [&](int64_t block) {
    const int64_t begin = block * kBlock;
    use.add_into(x + begin, y + begin, std::min(kBlock, count - begin));
  });
}

void widen(const void* from, DType dtype, int64_t count, float* to) { table().widen(from, dtype, count, to); }

}  // namespace kvarena::kernels
