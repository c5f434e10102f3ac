#pragma once
// Little-endian bytes of stream codecs: a writer, and a reader that trusts nothing it reads.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/core/error.h"

namespace kvarena {

class ByteWriter {
 public:
  void u8(int64_t x) { bytes.push_back(static_cast<uint8_t>(x)); }
  void u16(uint16_t x) {
    u8(x & 0xff);
    u8(x >> 8);
  }
  void u32(int64_t x) {
    u16(static_cast<uint16_t>(x));
    u16(static_cast<uint16_t>(x >> 16));
  }
  void append(std::span<const uint8_t> more) { bytes.insert(bytes.end(), more.begin(), more.end()); }

  std::vector<uint8_t> bytes;
};

/// Throws UserError where the bytes end too early.
class ByteReader {
 public:
  /// `codec` is named in errors and must outlive the reader.
  ByteReader(std::span<const uint8_t> bytes, const char* codec) : left_(bytes), codec_(codec) {}
  uint8_t u8() { return take(1)[0]; }
  uint16_t u16() {
    const auto two = take(2);
    return static_cast<uint16_t>(two[0] | two[1] << 8);
  }
  int64_t u32() {
    const int64_t low = u16();
    return low | int64_t{u16()} << 16;
  }
  std::span<const uint8_t> take(int64_t n) {
    if (n > static_cast<int64_t>(left_.size())) wrong("the end", "more bytes");
    const auto first = left_.first(static_cast<size_t>(n));
    left_ = left_.subspan(static_cast<size_t>(n));
    return first;
  }
  /// Throws UserError unless all bytes were read.
  void expect_end() const {
    if (!left_.empty()) wrong("bytes after the last layer", "the end");
  }
  [[noreturn]] void wrong(const std::string& found, const std::string& expected) const {
    fail({.place = std::string(codec_) + " stream", .found = found, .expected = expected});
  }

 private:
  std::span<const uint8_t> left_;
  const char* codec_;
};

}  // namespace kvarena
