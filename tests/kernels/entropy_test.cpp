#include <random>

#include "kernels/entropy/rans.h"
#include "tests/kernels/support.h"

namespace kvarena::kernels {
namespace {

struct Block {
  std::vector<uint8_t> symbols, bytes;
  std::vector<int16_t> starts;
  int64_t n, count;
};

/// Lanes from constant to uniform.
Block make_block(int64_t n, int64_t count, uint64_t seed) {
  Block b{std::vector<uint8_t>(static_cast<size_t>(n * kRansLanes)), {}, {}, n, count};
  std::mt19937_64 random(seed);
  std::vector<uint32_t> counts(static_cast<size_t>(count * kRansLanes));
  for (int64_t i = 0; i < n * kRansLanes; ++i) {
    const auto range = static_cast<uint64_t>(1 + (count - 1) * (i % kRansLanes) / (kRansLanes - 1));
    const auto symbol = static_cast<uint8_t>(random() % range);
    b.symbols[static_cast<size_t>(i)] = symbol;
    ++counts[static_cast<size_t>(symbol * kRansLanes + i % kRansLanes)];
  }
  b.starts.resize(static_cast<size_t>((count + 1) * kRansLanes));
  rans_starts(counts.data(), count, b.starts.data());
  b.bytes.resize(static_cast<size_t>(rans_bound(n)));
  b.bytes.resize(static_cast<size_t>(rans_encode(b.symbols.data(), n, b.starts.data(), b.bytes.data())));
  return b;
}

bool decode(const Block& b, const std::vector<uint8_t>& bytes, std::vector<uint8_t>& symbols) {
  symbols.assign(b.symbols.size(), 0xff);
  return rans_decode(bytes.data(), static_cast<int64_t>(bytes.size()), b.n, b.starts.data(), b.count, symbols.data());
}

TEST(Rans, SymbolsComeBackOnEveryPath) {
  for (const int64_t count : {1, 2, 11, 15, 31, 255}) {
    for (const int64_t n : {0, 1, 15, 16, 17, 256}) {
      const Block b = make_block(n, count, static_cast<uint64_t>(count * 1000 + n));
      for (const CpuPath path : available_cpu_paths()) {
        const ScopedCpuPath forced(path);
        std::vector<uint8_t> back;
        ASSERT_TRUE(decode(b, b.bytes, back)) << name_of(path) << " " << count << " " << n;
        ASSERT_EQ(back, b.symbols) << name_of(path) << " " << count << " " << n;
      }
    }
  }
}

TEST(Rans, CostsWhatTheEntropyAsks) {
  const Block b = make_block(256, 31, 3);
  double bits = 0;
  for (size_t i = 0; i < b.symbols.size(); ++i) {
    const size_t at = b.symbols[i] * 16 + i % 16;
    bits -= std::log2(static_cast<double>(b.starts[at + 16] - b.starts[at]) / 4096);
  }
  EXPECT_LE(static_cast<double>(b.bytes.size()), bits / 8 * 1.01 + 64);
  EXPECT_LE(make_block(256, 1, 4).bytes.size(), 64U);  // one symbol: nothing but the states
}

TEST(Rans, FrequenciesFillTheRangeEvenWhenCountsAreExtreme) {
  std::vector<uint32_t> counts(256 * 16, 1);
  for (int lane = 0; lane < 16; ++lane) counts[static_cast<size_t>(7 * 16 + lane)] = 4000000000u;
  for (int s = 0; s < 256; ++s) counts[static_cast<size_t>(s * 16 + 3)] = 0;
  std::vector<int16_t> starts(257 * 16);
  rans_starts(counts.data(), 256, starts.data());
  for (size_t lane = 0; lane < 16; ++lane) {
    EXPECT_EQ(starts[lane], 0);
    EXPECT_EQ(starts[256 * 16 + lane], 4096);
    for (size_t s = 0; s < 256; ++s) {
      const int f = starts[(s + 1) * 16 + lane] - starts[s * 16 + lane];
      ASSERT_GE(f, counts[s * 16 + lane] > 0 ? 1 : 0);
    }
  }
}

TEST(Rans, DamagedBlocksDecodeWithinBoundsAndAreMostlyFoundOut) {
  const Block b = make_block(64, 15, 9);
  std::mt19937_64 random(10);
  int found = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<uint8_t> damaged = b.bytes;
    damaged[random() % damaged.size()] ^= static_cast<uint8_t>(1u << random() % 8);
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      std::vector<uint8_t> back;
      const bool fine = decode(b, damaged, back);
      if (path == CpuPath::reference && !fine) ++found;
      for (const uint8_t s : back) ASSERT_TRUE(s < 15 || !fine);
    }
  }
  EXPECT_GT(found, kTrials * 9 / 10);
  for (size_t cut = 0; cut < b.bytes.size(); ++cut) {
    std::vector<uint8_t> back;
    EXPECT_FALSE(decode(b, {b.bytes.begin(), b.bytes.begin() + static_cast<int64_t>(cut)}, back));
  }
}

/// Found by fuzzing: two words lift a state of 0 to the one that encoding starts from, so that another block says the
/// same.
TEST(Rans, StatesThatNoEncoderLeavesAreDamage) {
  const Block b = make_block(5, 1, 11);
  std::vector<uint8_t> other = b.bytes;
  ASSERT_EQ(other.size(), 64U);
  other[62] = 0;                            // the last lane's state, 0x10000, becomes 0
  other.insert(other.end(), {1, 0, 0, 0});  // words 1 and 0: 0 -> 1 -> 0x10000
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    std::vector<uint8_t> back;
    EXPECT_FALSE(decode(b, other, back)) << name_of(path);
  }
}

}  // namespace
}  // namespace kvarena::kernels
