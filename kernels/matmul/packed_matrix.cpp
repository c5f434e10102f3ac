#include <cstddef>
#include <cstring>

#include "kernels/common/parallel.h"
#include "kernels/matmul/matmul.h"

namespace kvarena::kernels {

namespace {

/// Lines up codes of one output as weight_form.h lays them out: their words are kWordBytes apart from `words` on.
class CodeWords {
 public:
  CodeWords(std::byte* words, int bits, int count) : words_(words), bits_(bits), count_(count) {}

  /// Adds code i to words that hold zeros in its place.
  void put(int i, uint32_t code) const {
    const int lower = lower_bits(bits_), upper = upper_bits(bits_);
    add(i * lower / 32, (code & ((1U << lower) - 1)) << (i * lower % 32));
    if (upper > 0) add(lower_words(bits_, count_) + i * upper / 32, code >> lower << (i * upper % 32));
  }
  [[nodiscard]] uint8_t get(int i) const {
    const int lower = lower_bits(bits_), upper = upper_bits(bits_);
    uint32_t code = word(i * lower / 32) >> (i * lower % 32) & ((1U << lower) - 1);
    if (upper > 0) {
      const uint32_t above = word(lower_words(bits_, count_) + i * upper / 32) >> (i * upper % 32);
      code |= (above & ((1U << upper) - 1)) << lower;
    }
    return static_cast<uint8_t>(code);
  }

 private:
  [[nodiscard]] uint32_t word(int index) const {
    uint32_t found = 0;
    std::memcpy(&found, words_ + index * kWordBytes, sizeof found);
    return found;
  }
  void add(int index, uint32_t bits) const {
    const uint32_t sum = word(index) | bits;
    std::memcpy(words_ + index * kWordBytes, &sum, sizeof sum);
  }

  std::byte* words_;
  int bits_, count_;
};

/// Where the parts of a block of one output lie.
struct BlockPlace {
  std::byte* block;  // of the panel
  int64_t output;    // in the panel
  BlockForm form;

  [[nodiscard]] std::byte* scale() const { return block + output * (form.exponent ? 1 : 2); }
  [[nodiscard]] std::byte* shift() const { return block + scale_bytes(form) + output * 2; }
  [[nodiscard]] CodeWords factors() const {
    return {block + factors_at(form) + output * 4, form.factor_bits, factors_of(form)};
  }
  [[nodiscard]] CodeWords codes(int64_t run) const {
    return {block + codes_at(form) + run * run_bytes(form) + output * 4, form.code_bits, kRunInputs};
  }
};

void store(const BlockPlace& to, const WeightBlock& block) {
  const BlockForm& form = to.form;
  std::memcpy(to.scale(), &block.scale, form.exponent ? 1 : 2);
  if (form.shifted) std::memcpy(to.shift(), &block.shift, 2);
  const int groups = groups_of(form);
  for (int i = 0; i < factors_of(form); ++i) {
    to.factors().put(i, i < groups ? block.factors[i] : block.shift_factors[i - groups]);
  }
  for (int i = 0; i < form.inputs; ++i) to.codes(i / kRunInputs).put(i % kRunInputs, block.codes[i]);
}

WeightBlock load(const BlockPlace& from) {
  const BlockForm& form = from.form;
  WeightBlock block;
  std::memcpy(&block.scale, from.scale(), form.exponent ? 1 : 2);
  if (form.shifted) std::memcpy(&block.shift, from.shift(), 2);
  const int groups = groups_of(form);
  for (int i = 0; i < factors_of(form); ++i) {
    (i < groups ? block.factors[i] : block.shift_factors[i - groups]) = from.factors().get(i);
  }
  for (int i = 0; i < form.inputs; ++i) block.codes[i] = from.codes(i / kRunInputs).get(i % kRunInputs);
  return block;
}

/// Block `index` of a row.
BlockPlace place_of(const PackedMatrix& w, int64_t row, int64_t index) {
  const BlockForm form = block_form(w.form());
  auto* data = static_cast<std::byte*>(const_cast<void*>(w.data()));
  return {data + row / PackedMatrix::kPanel * w.panel_bytes() + index * block_bytes(form), row % PackedMatrix::kPanel,
          form};
}

}  // namespace

PackedMatrix::PackedMatrix(int64_t n, int64_t k, WeightForm form, Arithmetic arithmetic)
    : n_(n), k_(k), form_(form), arithmetic_(arithmetic) {
  require(n >= 0 && k >= 0, "PackedMatrix: negative size");
  require(arithmetic == Arithmetic::exact || form == WeightForm::bf16,
          "PackedMatrix: bf16 arithmetic needs bf16 weights");
  require(!is_blocks(form) || k % block_form(form).inputs == 0, "PackedMatrix: rows that end within a block");
  const size_t size = static_cast<size_t>(bytes());
  if (size == 0) return;
  data_.reset(std::aligned_alloc(64, (size + 63) / 64 * 64));
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, size);
}

void PackedMatrix::pack_rows(int64_t row_begin, int64_t count, const float* rows, int64_t row_stride) {
  require(row_begin >= 0 && count >= 0 && row_begin + count <= n_, "PackedMatrix::pack_rows: rows outside the matrix");
  require(!is_blocks(form_), "PackedMatrix::pack_rows: a matrix of blocks");
  // Panel by panel and a few columns at a time, so that writes go out in whole cache lines.
  constexpr int64_t kColumns = 64;
  const int64_t first_panel = row_begin / kPanel, end = row_begin + count;
  const int64_t last_panel = (end + kPanel - 1) / kPanel;
  parallel_for(count == 0 ? 0 : last_panel - first_panel, [&](int64_t p) {
    const int64_t panel = first_panel + p;
    const int64_t begin = std::max(row_begin, panel * kPanel), stop = std::min(end, (panel + 1) * kPanel);
    for (int64_t c0 = 0; c0 < k_; c0 += kColumns) {
      for (int64_t row = begin; row < stop; ++row) {
        const float* source = rows + (row - row_begin) * row_stride;
        for (int64_t c = c0; c < std::min(k_, c0 + kColumns); ++c) {
          store_element(data_.get(), dtype_of(form_), element(row, c), source[c]);
        }
      }
    }
  });
}

void PackedMatrix::pack_block(int64_t row, int64_t index, const WeightBlock& block) {
  require(is_blocks(form_), "PackedMatrix::pack_block: a matrix of plain floats");
  require(row >= 0 && row < n_ && index >= 0 && index < k_ / block_form(form_).inputs,
          "PackedMatrix::pack_block: a block outside the matrix");
  store(place_of(*this, row, index), block);
}

void PackedMatrix::unpack_row(int64_t row, float* out) const {
  require(row >= 0 && row < n_, "PackedMatrix::unpack_row: row outside the matrix");
  if (!is_blocks(form_)) {
    for (int64_t c = 0; c < k_; ++c) out[c] = load_element(data_.get(), dtype_of(form_), element(row, c));
    return;
  }
  const BlockForm form = block_form(form_);
  for (int64_t index = 0; index < k_ / form.inputs; ++index) {
    block_weights(form, load(place_of(*this, row, index)), out + index * form.inputs);
  }
}

PackedMatrix pack_weights(const float* w, int64_t n, int64_t k, DType dtype, Arithmetic arithmetic) {
  PackedMatrix packed(n, k, dtype, arithmetic);
  packed.pack_rows(0, n, w, k);
  return packed;
}

}  // namespace kvarena::kernels
