#include "harness/core/random.h"

namespace kvarena {
namespace {

uint64_t mix(uint64_t x) {  // finaliser of SplitMix64 (Steele, Lea, Flood 2014)
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

RandomStream::RandomStream(uint64_t seed, std::string_view purpose) : key_(mix(seed)) {
  for (const unsigned char c : purpose) key_ = mix(key_ ^ c);
}

uint64_t RandomStream::bits(uint64_t index) const { return mix(key_ ^ mix(index)); }

double RandomStream::uniform(uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1.0p-53; }

uint64_t RandomStream::below(uint64_t bound, uint64_t index) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits(index)) * bound) >> 64);
}

}  // namespace kvarena
