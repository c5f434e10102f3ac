// Makes kernels_tiles.json: what a processor's own tile products give, bit for bit, for inputs that try every kind of
// number. On Linux on a processor with AMX:
//   g++ -std=c++20 -O2 -I. tests/golden/kernels_tiles.cpp -o kernels_tiles && ./kernels_tiles > kernels_tiles.json
// It was made without one, by Bochs (github.com/bochs-emu/Bochs, commit 783b58fd6d9b, --enable-x86-64 --enable-avx
// --enable-evex --enable-amx; cpu: model=sapphire_rapids; com1: mode=file), booted into main() by
// kernels_tiles_start.S, which says how.
#include <cstdint>
#include <random>
#if __STDC_HOSTED__
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#endif

#include "kernels/common/tiles.h"

namespace {

#if __STDC_HOSTED__
void put(char c) { std::putchar(c); }
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
/// To the first serial port, once it is ready, as eight bits.
void put(char c) {
  constexpr uint16_t kData = 0x3f8, kFormat = 0x3fb, kStatus = 0x3fd;
  constexpr uint8_t kEightBits = 3;
  uint8_t status = 0;
  asm volatile("outb %0, %1" ::"a"(kEightBits), "Nd"(kFormat));
  while ((status & 0x20) == 0) asm volatile("inb %1, %0" : "=a"(status) : "Nd"(kStatus));
  asm volatile("outb %0, %1" ::"a"(c), "Nd"(kData));
}
bool may_use_tiles() { return true; }
#endif

void put(const char* text) {
  for (; *text != '\0'; ++text) put(*text);
}

struct Case {
  const char* name;
  uint32_t a[16][16], b[16][16];  // two bf16 each
  uint32_t c[16][16];             // float bits
};

/// A sign, an exponent of lowest .. highest as it is stored, a random significand.
uint32_t number(std::mt19937& random, uint32_t lowest, uint32_t highest) {
  const uint32_t exponent = lowest + random() % (highest - lowest + 1);
  return (random() & 0x807fffffU) | exponent << 23;
}

Case make(const char* name, uint32_t lowest, uint32_t highest) {
  Case made{.name = name};
  std::mt19937 random(lowest * 1000 + highest);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      made.a[i][j] = number(random, lowest, highest) >> 16 | (number(random, lowest, highest) & 0xffff0000U);
      made.b[i][j] = number(random, lowest, highest) >> 16 | (number(random, lowest, highest) & 0xffff0000U);
      made.c[i][j] = number(random, lowest, highest);
    }
  }
  return made;
}

void put(const char* name, const uint32_t (&tile)[16][16], const char* end) {
  put("    \"");
  put(name);
  put("\": \"");
  for (const auto& row : tile) {
    for (const uint32_t each : row) {
      for (int digit = 28; digit >= 0; digit -= 4) put("0123456789abcdef"[each >> digit & 15]);
    }
  }
  put("\"");
  put(end);
}

void run(const Case& given, const char* end) {
  uint32_t d[16][16];
  kvarena::kernels::enter_tiles();
  kvarena::kernels::load_tile<0>(given.c, 64);
  kvarena::kernels::load_tile<3>(given.a, 64);
  kvarena::kernels::load_tile<7>(given.b, 64);
  kvarena::kernels::multiply_tiles<0, 3, 7>();
  kvarena::kernels::store_tile<0>(d, 64);
  kvarena::kernels::leave_tiles();
  put("   {\"name\": \"");
  put(given.name);
  put("\",\n");
  put("a", given.a, ",\n");
  put("b", given.b, ",\n");
  put("c", given.c, ",\n");
  put("d", d, "}");
  put(end);
}

}  // namespace

int main() {
  if (!may_use_tiles()) {
    put("no leave to use tiles: this processor or system has none\n");
    return 1;
  }
  put("{\"made_by\": \"tests/golden/kernels_tiles.cpp\",\n \"cases\": [\n");
  run(make("numbers near one", 120, 130), ",\n");
  run(make("numbers of every size", 1, 254), ",\n");
  run(make("products that vanish", 40, 90), ",\n");
  run(make("products among the smallest numbers", 62, 66), ",\n");
  run(make("numbers that vanish and the smallest that do not", 0, 2), ",\n");
  run(make("the largest numbers", 185, 195), ",\n");
  run(make("zeros and denormal numbers", 0, 0), ",\n");
  run(make("infinities and none", 253, 255), "\n ]}\n");
  return 0;
}
