#include "kernels/entropy/rans.h"

#include <algorithm>
#include <vector>

#include "kernels/common/parallel.h"
#include "kernels/entropy/rans_paths.h"

namespace kvarena::kernels {
namespace {

constexpr uint32_t kTotal = 1u << kRansBits, kLow = 1u << 16;

void put_u32(uint8_t* to, uint32_t x) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(x >> (8 * i));
}
uint32_t get_u32(const uint8_t* from) {
  return from[0] | uint32_t{from[1]} << 8 | uint32_t{from[2]} << 16 | uint32_t{from[3]} << 24;
}

/// One lane's frequencies, summing to 4096: proportional, at least 1 where there is a count; what rounding leaves over
/// or short goes to the most frequent symbols.
void lane_starts(const uint32_t* counts, int64_t symbols, int64_t lane, int16_t* starts) {
  uint64_t total = 0;
  for (int64_t s = 0; s < symbols; ++s) total += counts[s * kRansLanes + lane];
  uint32_t frequency[256] = {};
  uint32_t sum = 0;
  for (int64_t s = 0; s < symbols; ++s) {
    const uint64_t count = counts[s * kRansLanes + lane];
    if (count > 0) frequency[s] = std::max<uint32_t>(1, static_cast<uint32_t>(count * kTotal / total));
    sum += frequency[s];
  }
  while (sum != kTotal) {
    uint32_t* most = std::max_element(frequency, frequency + symbols);
    if (sum < kTotal) {
      *most += kTotal - sum;
      sum = kTotal;
    } else {
      const uint32_t less = std::min(sum - kTotal, *most / 2);
      *most -= less;
      sum -= less;
    }
  }
  int16_t start = 0;
  for (int64_t s = 0; s <= symbols; ++s) {
    starts[s * kRansLanes + lane] = start;
    if (s < symbols) start = static_cast<int16_t>(start + static_cast<int>(frequency[s]));
  }
}

}  // namespace

void rans_starts(const uint32_t* counts, int64_t symbols, int16_t* starts) {
  require(symbols > 0 && symbols <= 256, "rans_starts: between 1 and 256 symbols");
  for (int64_t lane = 0; lane < kRansLanes; ++lane) lane_starts(counts, symbols, lane, starts);
}

int64_t rans_encode(const uint8_t* symbols, int64_t n, const int16_t* starts, uint8_t* out) {
  uint32_t x[kRansLanes];
  std::fill_n(x, kRansLanes, kLow);
  std::vector<uint16_t> words;  // last first
  for (int64_t step = n - 1; step >= 0; --step) {
    for (int64_t lane = kRansLanes - 1; lane >= 0; --lane) {
      const int16_t* at = starts + symbols[step * kRansLanes + lane] * kRansLanes + lane;
      const auto start = static_cast<uint32_t>(at[0]), frequency = static_cast<uint32_t>(at[kRansLanes] - at[0]);
      require(frequency > 0, "rans_encode: a symbol without frequency");
      if (x[lane] >= uint64_t{frequency} << (32 - kRansBits)) {
        words.push_back(static_cast<uint16_t>(x[lane]));
        x[lane] >>= 16;
      }
      x[lane] = (x[lane] / frequency << kRansBits) + x[lane] % frequency + start;
    }
  }
  for (int64_t lane = 0; lane < kRansLanes; ++lane) put_u32(out + 4 * lane, x[lane]);
  uint8_t* to = out + 4 * kRansLanes;
  for (auto word = words.rbegin(); word != words.rend(); ++word, to += 2) {
    to[0] = static_cast<uint8_t>(*word);
    to[1] = static_cast<uint8_t>(*word >> 8);
  }
  return to - out;
}

bool rans_decode(const uint8_t* data, int64_t bytes, int64_t n, const int16_t* starts, int64_t count,
                 uint8_t* symbols) {
  if (bytes < 4 * kRansLanes) return false;
  uint32_t x[kRansLanes];
  for (int64_t lane = 0; lane < kRansLanes; ++lane) x[lane] = get_u32(data + 4 * lane);
  // The encoder leaves no state this low; words would lift it to one that another block says too.
  if (std::any_of(x, x + kRansLanes, [](uint32_t state) { return state < kLow; })) return false;
  const uint8_t *from = data + 4 * kRansLanes, *end = data + bytes;
  int64_t step = 0;
  if (const RansTable* fast = KVARENA_ACTIVE_TABLE(rans_table)) {
    step = fast->steps(x, &from, end, n, starts, count, symbols);
  }
  for (; step < n; ++step) {
    for (int64_t lane = 0; lane < kRansLanes; ++lane) {
      const auto slot = static_cast<int16_t>(x[lane] & (kTotal - 1));
      int64_t symbol = 0;
      while (symbol + 1 < count && starts[(symbol + 1) * kRansLanes + lane] <= slot) ++symbol;
      const int16_t* at = starts + symbol * kRansLanes + lane;
      x[lane] =
          static_cast<uint32_t>(at[kRansLanes] - at[0]) * (x[lane] >> kRansBits) + static_cast<uint32_t>(slot - at[0]);
      symbols[step * kRansLanes + lane] = static_cast<uint8_t>(symbol);
      if (x[lane] >= kLow) continue;
      if (end - from < 2) return false;
      x[lane] = x[lane] << 16 | from[0] | static_cast<uint32_t>(from[1]) << 8;
      from += 2;
    }
  }
  return from == end && std::all_of(x, x + kRansLanes, [](uint32_t state) { return state == kLow; });
}

}  // namespace kvarena::kernels
