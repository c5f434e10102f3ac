// Products with weights in blocks against products with the same weights as floats: every bit.
#include <cstddef>
#include <string>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/row_reductions.h"
#include "tests/kernels/support.h"

namespace kvarena::kernels {
namespace {

using test::expect_same_bits;
using test::normal;

std::vector<WeightForm> block_forms() {
  std::vector<WeightForm> forms;
  for (int i = 0; i < kWeightForms; ++i) {
    if (is_blocks(static_cast<WeightForm>(i))) forms.push_back(static_cast<WeightForm>(i));
  }
  return forms;
}

std::string describe(WeightForm form, CpuPath path) {
  return std::string(name_of(path)) + " form " + std::to_string(static_cast<int>(form));
}

/// A block of random codes under scales of about one hundredth, of either sign.
WeightBlock random_block(const BlockForm& form, std::mt19937_64& random) {
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<uint64_t>(limit)); };
  const auto half = [&] { return f32_to_f16(0.02F * static_cast<float>(below(201) - 100) / 100); };
  WeightBlock block;
  block.scale = form.exponent ? static_cast<uint16_t>(110 + below(16)) : half();
  if (form.shifted) block.shift = half();
  for (int group = 0; form.factor_bits > 0 && group < groups_of(form); ++group) {
    block.factors[group] = static_cast<uint8_t>(below(1 << form.factor_bits));
    if (form.shifted) block.shift_factors[group] = static_cast<uint8_t>(below(1 << form.factor_bits));
  }
  for (int i = 0; i < form.inputs; ++i) block.codes[i] = static_cast<uint8_t>(below(1 << form.code_bits));
  return block;
}

/// Weights in blocks, and the same as floats.
struct Twins {
  PackedMatrix blocks, floats;
  std::vector<float> rows;  // as block_weights() gives them

  Twins(int64_t n, int64_t k, WeightForm form) : blocks(n, k, form), rows(static_cast<size_t>(n * k)) {
    const BlockForm shape = block_form(form);
    std::mt19937_64 random(static_cast<uint64_t>(form));
    for (int64_t row = n - 1; row >= 0; --row) {
      for (int64_t index = 0; index < k / shape.inputs; ++index) {
        const WeightBlock block = random_block(shape, random);
        blocks.pack_block(row, index, block);
        block_weights(shape, block, rows.data() + row * k + index * shape.inputs);
      }
    }
    floats = pack_weights(rows.data(), n, k, DType::f32);
  }
};

TEST(WeightBlocks, RowsAreReadBackAsTheyWerePacked) {
  for (const WeightForm form : block_forms()) {
    const Twins twins(70, 512, form);
    std::vector<float> read(twins.rows.size());
    for (int64_t row = 0; row < 70; ++row) twins.blocks.unpack_row(row, read.data() + row * 512);
    expect_same_bits(read, twins.rows, describe(form, CpuPath::reference));
  }
}

TEST(WeightBlocks, TakeTheBitsOfTheirFiles) {
  constexpr double kBits[] = {4.5, 5, 5.5, 6, 8.5, 4.5, 4.25, 2.625, 3.4375, 4.5, 5.5, 6.5625, 4.25};
  for (const WeightForm form : block_forms()) {
    const PackedMatrix w(64, 512, form);
    const double bits = 8.0 * static_cast<double>(w.bytes()) / (64 * 512), stored = kBits[static_cast<int>(form) - 3];
    EXPECT_GE(bits, stored);
    EXPECT_LE(bits, 1.02 * stored) << describe(form, CpuPath::reference);
  }
}

TEST(WeightBlocks, ProductsHaveTheBitsOfThoseWithFloats) {
  struct Case {
    int64_t m, n, k;
    bool bias = false;
  };
  for (const WeightForm form : block_forms()) {
    for (const Case& c : {Case{1, 1, 256}, Case{1, 70, 768, true}, Case{1, 160, 256}, Case{2, 100, 256},
                          Case{5, 31, 512}, Case{13, 70, 768, true}, Case{50, 33, 512}, Case{200, 70, 256, true}}) {
      const Twins twins(c.n, c.k, form);
      const std::vector<float> x = normal(c.m * c.k, 1), bias = normal(c.n, 2);
      for (const CpuPath path : available_cpu_paths()) {
        const ScopedCpuPath forced(path);
        for (const int threads : {1, 2}) {
          const ScopedThreads scope(threads);
          const auto product = [&](const PackedMatrix& w) {
            std::vector<float> y(static_cast<size_t>(c.m * c.n), -77.0F);
            matmul({x.data(), c.m, c.k, &w, c.bias ? bias.data() : nullptr, y.data(), c.n});
            return y;
          };
          expect_same_bits(product(twins.blocks), product(twins.floats), describe(form, path));
        }
      }
    }
  }
}

TEST(WeightBlocks, ExtremeScalesAndCodesKeepTheirBits) {
  for (const WeightForm form : block_forms()) {
    const BlockForm shape = block_form(form);
    PackedMatrix w(5, shape.inputs, form);
    std::vector<float> rows;
    for (const auto& [scale, shift] :
         {std::pair{0x0001, 0x8001}, {0x7bff, 0xfbff}, {0xfbff, 0x7bff}, {0, 0x8000}, {0x8000, 0}}) {
      WeightBlock block;
      block.scale = static_cast<uint16_t>(shape.exponent ? scale % 252 : scale);
      block.shift = static_cast<uint16_t>(shape.shifted ? shift : 0);
      for (int i = 0; i < shape.inputs; ++i) block.codes[i] = static_cast<uint8_t>(i % (1 << shape.code_bits));
      for (int group = 0; shape.factor_bits > 0 && group < groups_of(shape); ++group) {
        block.factors[group] = static_cast<uint8_t>(group % 2 == 0 ? (1 << shape.factor_bits) - 1 : group / 2);
        if (shape.shifted) block.shift_factors[group] = block.factors[group];
      }
      w.pack_block(static_cast<int64_t>(rows.size()) / shape.inputs, 0, block);
      rows.resize(rows.size() + static_cast<size_t>(shape.inputs));
      block_weights(shape, block, &rows[rows.size() - static_cast<size_t>(shape.inputs)]);
    }
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      for (const int64_t m : {1, 2}) {  // in registers, and in the cache
        for (int64_t c = 0; c < shape.inputs; ++c) {
          std::vector<float> x(static_cast<size_t>(m * shape.inputs)), y(static_cast<size_t>(m * 5)), wanted;
          x[static_cast<size_t>(c)] = 1;
          matmul({x.data(), m, shape.inputs, &w, nullptr, y.data(), 5});
          y.resize(5);
          for (int64_t row = 0; row < 5; ++row)
            wanted.push_back(rows[static_cast<size_t>(row * shape.inputs + c)] + 0.0F);
          expect_same_bits(y, wanted, describe(form, path));
        }
      }
    }
  }
}

TEST(WeightBlocks, RowReductionsAreThoseOfFloats) {
  constexpr int64_t m = 13, n = 70, k = 768;
  const std::vector<float> x = normal(m * k, 3);
  for (const WeightForm form : block_forms()) {
    const Twins twins(n, k, form);
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      std::vector<float> sums[2], peaks[2];
      std::vector<int32_t> columns[2];
      for (const int side : {0, 1}) {
        const PackedMatrix& w = side == 0 ? twins.blocks : twins.floats;
        sums[side].resize(m), peaks[side].resize(m), columns[side].resize(m);
        row_magnitudes({x.data(), m, k}, w, sums[side].data());
        row_peaks({x.data(), m, k}, w, peaks[side].data(), columns[side].data());
      }
      expect_same_bits(sums[0], sums[1], describe(form, path));
      expect_same_bits(peaks[0], peaks[1], describe(form, path));
      EXPECT_EQ(columns[0], columns[1]) << describe(form, path);
    }
  }
}

}  // namespace
}  // namespace kvarena::kernels
