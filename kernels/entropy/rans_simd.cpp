// Written as loops over the 16 lanes, which the compiler turns into a few vector instructions each: the symbol is the
// number of starts at or below the lane's slot. Only taking words is lane by lane.
#include "kernels/common/simd.h"
#include "kernels/entropy/rans_paths.h"

namespace kvarena::kernels {
namespace {

int64_t steps(uint32_t* states, const uint8_t** words, const uint8_t* end, int64_t n, const int16_t* starts,
              int64_t count, uint8_t* symbols) {
  constexpr uint32_t kMask = (1u << kRansBits) - 1;
  uint32_t x[kLanes];
  for (int i = 0; i < kLanes; ++i) x[i] = states[i];
  const uint8_t* from = *words;
  int64_t step = 0;
  for (; step < n && end - from >= 2 * kLanes; ++step) {
    int16_t slot[kLanes], symbol[kLanes], start[kLanes], next[kLanes];
    for (int i = 0; i < kLanes; ++i) slot[i] = static_cast<int16_t>(x[i] & kMask);
    for (int i = 0; i < kLanes; ++i) symbol[i] = 0;
    for (int i = 0; i < kLanes; ++i) start[i] = 0;
    for (int i = 0; i < kLanes; ++i) next[i] = 1 << kRansBits;
    for (int64_t s = 1; s < count; ++s) {
      const int16_t* at = starts + s * kLanes;
      for (int i = 0; i < kLanes; ++i) {
        const bool reached = slot[i] >= at[i];
        symbol[i] = static_cast<int16_t>(symbol[i] + (reached ? 1 : 0));
        start[i] = reached ? at[i] : start[i];
        next[i] = !reached && at[i] < next[i] ? at[i] : next[i];
      }
    }
    for (int i = 0; i < kLanes; ++i) {
      x[i] =
          static_cast<uint32_t>(next[i] - start[i]) * (x[i] >> kRansBits) + static_cast<uint32_t>(slot[i] - start[i]);
    }
    for (int i = 0; i < kLanes; ++i) symbols[step * kLanes + i] = static_cast<uint8_t>(symbol[i]);
    for (int i = 0; i < kLanes; ++i) {  // no branch: whether a lane needs a word is as good as random
      const uint32_t word = from[0] | static_cast<uint32_t>(from[1]) << 8;
      const bool low = x[i] < 1u << 16;
      x[i] = low ? x[i] << 16 | word : x[i];
      from += low ? 2 : 0;
    }
  }
  for (int i = 0; i < kLanes; ++i) states[i] = x[i];
  *words = from;
  return step;
}

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const RansTable rans_table;
const RansTable rans_table = {steps};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
