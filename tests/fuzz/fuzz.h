#pragma once
// Readers of foreign bytes as functions of bytes. A reader may refuse with UserError; whatever else leaves it, a crash,
// a hang or memory beyond measure, is a finding.
//
// With KVARENA_LIBFUZZER each target is a program of its own (preset `fuzz`); otherwise all are in one list, which
// replay_test.cpp runs over the corpus.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/core/error.h"

namespace kvarena::fuzz {

using Bytes = std::span<const uint8_t>;

struct Target {
  std::string name;
  void (*run)(Bytes data);
};

inline std::vector<Target>& targets() {
  static std::vector<Target> all;
  return all;
}

inline std::string_view text_of(Bytes data) { return {reinterpret_cast<const char*>(data.data()), data.size()}; }

/// A byte past the end is then past the end of an allocation, where the address sanitizer sees it.
inline std::vector<uint8_t> exactly(Bytes data) { return {data.begin(), data.end()}; }

/// Calls what may refuse; the rest of a target goes on.
template <class Read>
void try_to(Read read) {
  try {
    read();
  } catch (const UserError&) {
  }
}

/// Bytes for readers that want a file: one in memory, with a path that any reader can open.
class BytesFile {
 public:
  BytesFile() : file_(::memfd_create("fuzz", 0)) {
    if (file_ < 0) std::abort();
  }
  explicit BytesFile(Bytes data) : BytesFile() { write(data); }
  ~BytesFile() { ::close(file_); }
  BytesFile(const BytesFile&) = delete;
  BytesFile& operator=(const BytesFile&) = delete;

  /// Nobody may have it mapped.
  void write(Bytes data) const {
    if (::ftruncate(file_, 0) != 0) std::abort();
    if (::pwrite(file_, data.data(), data.size(), 0) != static_cast<ssize_t>(data.size())) std::abort();
  }
  [[nodiscard]] std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace kvarena::fuzz

// KVARENA_FUZZ(gguf, data) { ... }
#if defined(KVARENA_LIBFUZZER)
#define KVARENA_FUZZ(name, data)                                             \
  static void fuzz_##name(::kvarena::fuzz::Bytes data);                      \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) { \
    ::kvarena::fuzz::try_to([&] { fuzz_##name({bytes, size}); });            \
    return 0;                                                                \
  }                                                                          \
  static void fuzz_##name(::kvarena::fuzz::Bytes data)
#else
#define KVARENA_FUZZ(name, data)                                                                              \
  static void fuzz_##name(::kvarena::fuzz::Bytes data);                                                       \
  [[maybe_unused]] static const bool fuzz_##name##_listed = [] {                                              \
    ::kvarena::fuzz::targets().push_back(                                                                     \
        {#name, [](::kvarena::fuzz::Bytes bytes) { ::kvarena::fuzz::try_to([&] { fuzz_##name(bytes); }); }}); \
    return true;                                                                                              \
  }();                                                                                                        \
  static void fuzz_##name(::kvarena::fuzz::Bytes data)
#endif
