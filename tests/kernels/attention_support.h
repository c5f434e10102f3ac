#pragma once
// One layer's cache and queries for tests: random rows stored in cells, problems built over them.

#include "kernels/attention/attention.h"
#include "tests/kernels/support.h"

namespace kvarena::kernels::test {

struct Shape {
  int64_t q_heads = 6, kv_heads = 2, head_dim = 64, value_dim = 64;
  DType dtype = DType::f32;
  Arithmetic arithmetic = Arithmetic::exact;
};

/// Keys and values of all kv heads, `entries` each, from a seed.
class Layer {
 public:
  Layer(const Shape& shape, int64_t entries, uint64_t seed) : shape_(shape), entries_(entries) {
    key_rows_ = normal(entries * shape.kv_heads * shape.head_dim, seed);
    value_rows_ = normal(entries * shape.kv_heads * shape.value_dim, seed + 1);
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      keys_.push_back(cells(CellKind::keys, key_rows_, shape.head_dim, head, 0, entries));
      values_.push_back(cells(CellKind::values, value_rows_, shape.value_dim, head, 0, entries));
    }
  }

  /// The cells of entries begin .. end-1 of one head as a run of its own (a segment).
  [[nodiscard]] std::vector<float> cells(CellKind kind, int64_t head, int64_t begin, int64_t end) const {
    return kind == CellKind::keys ? cells(kind, key_rows_, shape_.head_dim, head, begin, end)
                                  : cells(kind, value_rows_, shape_.value_dim, head, begin, end);
  }
  [[nodiscard]] std::vector<HeadRun> runs() const { return runs(entries_); }
  /// Runs of the first `entries` entries.
  [[nodiscard]] std::vector<HeadRun> runs(int64_t entries) const {
    std::vector<HeadRun> runs;
    for (size_t h = 0; h < keys_.size(); ++h) runs.push_back({keys_[h].data(), values_[h].data(), entries});
    return runs;
  }
  [[nodiscard]] const std::vector<float>& key_rows() const { return key_rows_; }
  [[nodiscard]] const std::vector<float>& value_rows() const { return value_rows_; }

 private:
  [[nodiscard]] std::vector<float> cells(CellKind kind, const std::vector<float>& rows, int64_t dim, int64_t head,
                                         int64_t begin, int64_t end) const {
    // Lanes past the last entry hold NaN: whoever interprets them is found out.
    std::vector<float> memory(static_cast<size_t>(cell_bytes(end - begin, dim, shape_.dtype) / 4 + 1),
                              std::bit_cast<float>(0xffffffffu));
    const int64_t stride = shape_.kv_heads * dim;
    store_rows({kind, shape_.dtype, dim, memory.data()}, 0, end - begin, rows.data() + begin * stride + head * dim,
               stride);
    return memory;
  }

  Shape shape_;
  int64_t entries_;
  std::vector<float> key_rows_, value_rows_;
  std::vector<std::vector<float>> keys_, values_;
};

/// Memory of an AttentionState.
struct StateMemory {
  std::vector<float> out, max, sum, lse;
  int64_t q_len;
  Shape shape;
  StateMemory(const Shape& s, int64_t q)
      : out(static_cast<size_t>(q * s.q_heads * s.value_dim)),
        max(static_cast<size_t>(q * s.q_heads)),
        sum(max.size()),
        lse(max.size()),
        q_len(q),
        shape(s) {
    init_attention(state(), q_len, shape.q_heads, shape.value_dim);
  }
  AttentionState state() { return {out.data(), max.data(), sum.data()}; }
  void finish() { finish_attention(state(), q_len, shape.q_heads, shape.value_dim, lse.data()); }
};

inline AttendProblem problem(const Shape& shape, const float* q, int64_t q_len, const std::vector<HeadRun>& runs,
                             bool causal, StateMemory& memory) {
  return {.q = q,
          .q_len = q_len,
          .q_token_stride = shape.q_heads * shape.head_dim,
          .q_head_stride = shape.head_dim,
          .runs = runs.data(),
          .dtype = shape.dtype,
          .causal = causal,
          .state = memory.state()};
}

inline void attend_one(const Shape& shape, const AttendProblem& problem) {
  attend({{&problem, 1},
          shape.q_heads,
          shape.kv_heads,
          shape.head_dim,
          shape.value_dim,
          1 / std::sqrt(static_cast<float>(shape.head_dim)),
          shape.arithmetic});
}

}  // namespace kvarena::kernels::test
