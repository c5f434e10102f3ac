// The symbol of a lane is the number of starts at or below its slot. With t = slot - start modulo 2^16, the least t is
// the slot's distance from its own start, the greatest (those wrap around) its distance from the next, and the sign
// bits count: four operations a symbol for all lanes, on two symbols at once where registers are wide. Words are taken
// lane by lane, with AVX-512 by one expansion.
#include "kernels/common/simd.h"
#include "kernels/entropy/rans_paths.h"

namespace kvarena::kernels {
namespace {

constexpr uint32_t kMask = (1u << kRansBits) - 1, kLow = 1u << 16;

#if defined(KVARENA_SIMD_AVX512)

int64_t steps(uint32_t* states, const uint8_t** words, const uint8_t* end, int64_t n, const int16_t* starts,
              int64_t count, uint8_t* symbols) {
  __m512i x = _mm512_loadu_si512(states);
  const uint8_t* from = *words;
  const __m512i low_bits = _mm512_set1_epi32(kMask), low = _mm512_set1_epi32(kLow);
  const int64_t pairs = count / 2;  // of starts 1, 2, ...; the last may be the end, which no slot reaches
  const __m256i all = _mm256_set1_epi16(static_cast<int16_t>(2 * pairs));
  int64_t step = 0;
  for (; step < n && end - from >= 2 * kLanes; ++step) {
    const __m256i slot = _mm512_cvtepi32_epi16(_mm512_and_si512(x, low_bits));
    const __m512i both = _mm512_broadcast_i64x4(slot);
    __m512i least = both, most = _mm512_sub_epi16(both, _mm512_set1_epi16(1 << kRansBits));
    __m512i above = _mm512_setzero_si512();  // minus the starts that lie above the slot
    for (int64_t p = 0; p < pairs; ++p) {
      const __m512i t = _mm512_sub_epi16(both, _mm512_loadu_si512(starts + (1 + 2 * p) * kLanes));
      least = _mm512_min_epu16(least, t);
      most = _mm512_max_epu16(most, t);
      above = _mm512_add_epi16(above, _mm512_srai_epi16(t, 15));
    }
    const auto half = [](__m512i v, int h) {
      return h == 0 ? _mm512_castsi512_si256(v) : _mm512_extracti64x4_epi64(v, 1);
    };
    const __m256i offset = _mm256_min_epu16(half(least, 0), half(least, 1));
    const __m256i past = _mm256_max_epu16(half(most, 0), half(most, 1));
    const __m256i symbol = _mm256_add_epi16(all, _mm256_add_epi16(half(above, 0), half(above, 1)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(symbols + step * kLanes), _mm256_cvtepi16_epi8(symbol));
    const __m512i frequency = _mm512_cvtepu16_epi32(_mm256_sub_epi16(offset, past));
    x = _mm512_add_epi32(_mm512_mullo_epi32(frequency, _mm512_srli_epi32(x, kRansBits)), _mm512_cvtepu16_epi32(offset));
    const __mmask16 takes = _mm512_cmplt_epu32_mask(x, low);
    const __m256i next = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m512i word = _mm512_maskz_expand_epi32(takes, _mm512_cvtepu16_epi32(next));
    x = _mm512_mask_or_epi32(x, takes, _mm512_slli_epi32(x, 16), word);
    from += 2 * __builtin_popcount(takes);
  }
  _mm512_storeu_si512(states, x);
  *words = from;
  return step;
}

#else

int64_t steps(uint32_t* states, const uint8_t** words, const uint8_t* end, int64_t n, const int16_t* starts,
              int64_t count, uint8_t* symbols) {
  uint32_t x[kLanes];
  for (int i = 0; i < kLanes; ++i) x[i] = states[i];
  const uint8_t* from = *words;
  int64_t step = 0;
  for (; step < n && end - from >= 2 * kLanes; ++step) {
    alignas(32) uint16_t slots[kLanes], offset[kLanes], past[kLanes], symbol[kLanes];
    for (int i = 0; i < kLanes; ++i) slots[i] = static_cast<uint16_t>(x[i] & kMask);
    const auto as_vector = [](uint16_t* p) { return reinterpret_cast<__m256i*>(p); };
    const __m256i slot = _mm256_load_si256(as_vector(slots));
    __m256i least = slot, most = _mm256_sub_epi16(slot, _mm256_set1_epi16(1 << kRansBits));
    __m256i reached = _mm256_set1_epi16(static_cast<int16_t>(count - 1));
    for (int64_t s = 1; s < count; ++s) {
      const auto* at = reinterpret_cast<const __m256i*>(starts + s * kLanes);
      const __m256i t = _mm256_sub_epi16(slot, _mm256_loadu_si256(at));
      least = _mm256_min_epu16(least, t);
      most = _mm256_max_epu16(most, t);
      reached = _mm256_add_epi16(reached, _mm256_srai_epi16(t, 15));
    }
    _mm256_store_si256(as_vector(offset), least);
    _mm256_store_si256(as_vector(past), most);
    _mm256_store_si256(as_vector(symbol), reached);
    for (int i = 0; i < kLanes; ++i) {
      x[i] = static_cast<uint16_t>(offset[i] - past[i]) * (x[i] >> kRansBits) + offset[i];
    }
    for (int i = 0; i < kLanes; ++i) symbols[step * kLanes + i] = static_cast<uint8_t>(symbol[i]);
    for (int i = 0; i < kLanes; ++i) {  // no branch: whether a lane needs a word is as good as random
      const uint32_t word = from[0] | static_cast<uint32_t>(from[1]) << 8;
      const bool takes = x[i] < kLow;
      x[i] = takes ? x[i] << 16 | word : x[i];
      from += takes ? 2 : 0;
    }
  }
  for (int i = 0; i < kLanes; ++i) states[i] = x[i];
  *words = from;
  return step;
}

#endif

}  // namespace

namespace KVARENA_SIMD_PATH {
extern const RansTable rans_table;
const RansTable rans_table = {steps};
}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
