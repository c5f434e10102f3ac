#pragma once
// Messages between a store and its clients. A connection begins with a Hello, which is answered; then each
// request has its reply. Bytes of a block go as they are, followed by their CRC-32; numbers are little-endian.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvarena::storage {

static_assert(std::endian::native == std::endian::little);

struct Hello {
  uint64_t protocol = 0x31'45'52'4f'54'53'56'4b;  // "KVSTORE1"
  double bytes_per_s = 0;                         // that replies are to take at most; 0: no limit
};

enum class StoreOperation : uint32_t { allocate = 1, write, read, release };

struct StoreRequest {
  StoreOperation operation = StoreOperation::read;
  uint32_t unused = 0;
  uint64_t block = 0;
  int64_t at = 0;
  int64_t bytes = 0;  // of the block; on the wire after a write's request
};

enum class StoreStatus : uint32_t { done = 0, full, refused };

struct StoreReply {
  StoreStatus status = StoreStatus::done;
  uint32_t unused = 0;
  uint64_t block = 0;  // that was allocated
  int64_t bytes = 0;   // that follow: of a block, or, unless done, a text that says why
};

using Crc = uint64_t;

static_assert(sizeof(Hello) == 16 && sizeof(StoreRequest) == 32 && sizeof(StoreReply) == 24);

/// The bytes of a frame.
template <class Frame>
std::span<const std::byte> frame_bytes(const Frame& frame) {
  return std::as_bytes(std::span(&frame, 1));
}
template <class Frame>
std::span<std::byte> frame_room(Frame& frame) {
  return std::as_writable_bytes(std::span(&frame, 1));
}

/// Bytes of a block that are sent, received and checked at a time, at most.
inline constexpr size_t kStorePiece = size_t{256} << 10;

}  // namespace kvarena::storage
