#pragma once
// Tokens by id and ids by bytes.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena {

/// A hash of short byte strings; of no use against an adversary, who can only slow down his own request.
[[nodiscard]] inline uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15u;
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint64_t hash = left * kMultiplier;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 29;
  };
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    mix(word);
  }
  if (left >= 4) {  // two overlapping halves instead of a loop over the rest
    uint32_t low = 0;
    uint32_t high = 0;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + left - 4, 4);
    mix(static_cast<uint64_t>(high) << 32 | low);
  } else if (left > 0) {
    mix(static_cast<uint64_t>(static_cast<uint8_t>(at[0])) << 16 |
        static_cast<uint64_t>(static_cast<uint8_t>(at[left / 2])) << 8 | static_cast<uint8_t>(at[left - 1]));
  }
  return hash ^ hash >> 32;
}

/// A map from byte strings to ids, filled once. Open addressing, at most half full.
class Vocabulary {
 public:
  /// Makes room for about this many tokens and bytes; only speed depends on it.
  void reserve(size_t size, size_t total_bytes);

  /// Token `id` is `bytes`. `searchable`: find() may return it. A later token with the same bytes wins, as in the
  /// JSON objects these come from. Ids may come in any order.
  void set(int32_t id, std::string_view bytes, bool searchable);

  /// -1 when there is none.
  [[nodiscard]] int32_t find(std::string_view bytes) const {
    if (slots_.empty()) return -1;
    const uint64_t hash = hash_bytes(bytes);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.id < 0) return -1;
      if (slot.tag == static_cast<uint32_t>(hash >> 32) && this->bytes(slot.id) == bytes) return slot.id;
    }
  }

  /// Empty for ids that were never set.
  [[nodiscard]] std::string_view bytes(int32_t id) const {
    const Span span = spans_[static_cast<size_t>(id)];
    return {arena_.data() + span.begin, span.size};
  }

  /// One more than the largest id.
  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(spans_.size()); }

 private:
  struct Span {
    uint32_t begin = 0;
    uint32_t size = 0;
  };
  struct Slot {
    uint32_t tag = 0;
    int32_t id = -1;
  };
  void insert(int32_t id);

  std::string arena_;
  std::vector<Span> spans_;  // by id
  std::vector<Slot> slots_;  // a power of two
  size_t mask_ = 0;
  size_t searchable_ = 0;
};

}  // namespace kvarena
