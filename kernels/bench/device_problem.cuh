#pragma once
// Caches on the device for its microbenchmarks: random numbers made there, as many copies as a cache of the device
// cannot hold.

#include <memory>
#include <vector>

#include "kernels/attention/attention_cuda.h"
#include "kernels/cuda/runtime.cuh"

namespace kvarena::kernels::bench {

struct DeviceShape {
  int64_t q_heads, kv_heads, head_dim;
};

/// Fills `bytes` with what stands for small numbers in any format: bits of f32, f16 or bf16, scales, or codes.
enum class Fill : uint8_t { f32, f16, bf16, bits };

__device__ inline uint32_t mixed(uint32_t x) {
  x = (x ^ 61u) ^ (x >> 16);
  x *= 9u;
  x ^= x >> 4;
  x *= 0x27d4eb2du;
  return x ^ (x >> 15);
}

static __global__ void fill_kernel(uint32_t* words, int64_t count, Fill fill, uint32_t seed) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint32_t random = mixed(static_cast<uint32_t>(i) * 2654435761u + seed);
  const auto number = [](uint32_t bits) { return static_cast<float>(bits & 0xffffu) / 32768.0f - 1.0f; };
  switch (fill) {
    case Fill::bits: words[i] = random; return;
    case Fill::f32: words[i] = __float_as_uint(number(random)); return;
    case Fill::f16: words[i] = (random & 0x83ff83ffu) | 0x38003800u; return;   // 0.5 to 1 of either sign
    case Fill::bf16: words[i] = (random & 0x807f807fu) | 0x3f003f00u; return;  // the same
  }
}

inline void fill(void* memory, int64_t bytes, Fill with, uint32_t seed, CudaStream stream) {
  constexpr int64_t kThreads = 256;
  launch(fill_kernel, blocks_for(bytes / 4, kThreads), kThreads, 0, stream, static_cast<uint32_t*>(memory), bytes / 4,
         with, seed);
}

inline Fill fill_of(DType dtype) {
  return dtype == DType::f32 ? Fill::f32 : dtype == DType::f16 ? Fill::f16 : Fill::bf16;
}

/// A layer's cache of several sequences, dense or packed, and one step's queries.
class DeviceLayer {
 public:
  DeviceLayer(const DeviceShape& shape, DType dtype, int64_t sequences, int64_t entries, int64_t q_len,
              CudaStream stream)
      : DeviceLayer(shape, sequences, entries, q_len, stream) {
    const int64_t bytes = cell_bytes(entries, shape.head_dim, dtype);
    for (int64_t i = 0; i < sequences * shape.kv_heads; ++i) {
      runs_.push_back({memory(bytes, fill_of(dtype), stream), memory(bytes, fill_of(dtype), stream), entries});
    }
    bytes_ = 2 * bytes * sequences * shape.kv_heads;
    connect(dtype);
  }
  DeviceLayer(const DeviceShape& shape, const QuantFormat& format, int64_t sequences, int64_t entries, int64_t q_len,
              CudaStream stream)
      : DeviceLayer(shape, sequences, entries, q_len, stream) {
    for (int64_t i = 0; i < sequences * shape.kv_heads; ++i) {
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        const int64_t code_bytes = 4 * packed_code_dwords(entries, shape.head_dim, format.bits);
        const int64_t meta_bytes = 2 * packed_meta_count(kind, entries, shape.head_dim, format);
        packed_.push_back(std::make_unique<PackedEntries>(
            PackedEntries{kind, format, shape.head_dim, static_cast<uint32_t*>(memory(code_bytes, Fill::bits, stream)),
                          static_cast<uint16_t*>(memory(meta_bytes, fill_of(format.meta), stream)),
                          static_cast<uint16_t*>(memory(meta_bytes, fill_of(format.meta), stream))}));
        bytes_ += code_bytes + 2 * meta_bytes;
      }
      const PackedEntries *keys = packed_[packed_.size() - 2].get(), *values = packed_.back().get();
      runs_.push_back({nullptr, nullptr, entries, nullptr, 0, keys, entries, values, entries});
    }
    connect(DType::bf16);
  }

  /// Bytes of keys and values that attention reads.
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] std::vector<HeadRun>& runs() { return runs_; }
  [[nodiscard]] const std::vector<AttendProblem>& problems() const { return problems_; }
  void attend(CudaScratch& scratch, CudaStream stream) const {
    attend_cuda({problems_, shape_.q_heads, shape_.kv_heads, shape_.head_dim, shape_.head_dim, 0.08f}, scratch, stream);
  }
  [[nodiscard]] void* memory(int64_t bytes, Fill with, CudaStream stream) {
    buffers_.emplace_back((bytes + 3) / 4 * 4);
    fill(buffers_.back().data(), buffers_.back().bytes(), with, static_cast<uint32_t>(buffers_.size()), stream);
    return buffers_.back().data();
  }

 private:
  DeviceLayer(const DeviceShape& shape, int64_t sequences, int64_t entries, int64_t q_len, CudaStream stream)
      : shape_(shape) {
    const int64_t rows = q_len * shape.q_heads, numbers = rows * shape.head_dim;
    for (int64_t s = 0; s < sequences; ++s) {
      AttendProblem problem;
      problem.q = static_cast<const float*>(memory(numbers * 4, Fill::f32, stream));
      problem.q_len = q_len;
      problem.q_token_stride = shape.q_heads * shape.head_dim;
      problem.q_head_stride = shape.head_dim;
      problem.causal = q_len <= entries;
      problem.state = {static_cast<float*>(memory(numbers * 4, Fill::f32, stream)),
                       static_cast<float*>(memory(rows * 4, Fill::f32, stream)),
                       static_cast<float*>(memory(rows * 4, Fill::f32, stream))};
      init_attention_cuda(problem.state, q_len, shape.q_heads, shape.head_dim, stream);
      problems_.push_back(problem);
    }
  }
  void connect(DType dtype) {
    for (size_t s = 0; s < problems_.size(); ++s) {
      problems_[s].dtype = dtype;
      problems_[s].runs = runs_.data() + s * static_cast<size_t>(shape_.kv_heads);
    }
  }

  DeviceShape shape_;
  std::vector<CudaBuffer> buffers_;
  std::vector<std::unique_ptr<PackedEntries>> packed_;
  std::vector<HeadRun> runs_;
  std::vector<AttendProblem> problems_;
  int64_t bytes_ = 0;
};

}  // namespace kvarena::kernels::bench
