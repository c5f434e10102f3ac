#pragma once
// Caches as bytes: what a store or a wire takes of them.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "harness/cache/segment.h"

namespace kvarena {

class CacheWriter {
 public:
  template <typename T>
  void put(T x) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_all(std::span<const T>(&x, 1));
  }
  template <typename T>
  void put_all(std::span<const T> xs) {
    put_bytes(std::as_bytes(xs));
  }
  /// Numbers as the cache stores them.
  void put_numbers(std::span<const float> xs, DType dtype);
  /// So many more bytes, which the caller writes before anything else is put.
  [[nodiscard]] std::span<std::byte> grow(size_t bytes);
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void put_bytes(std::span<const std::byte> bytes);

  std::vector<std::byte> bytes_;
  std::vector<uint16_t> halves_;
};

/// Throws UserError on bytes that end too early, never reads beyond them.
class CacheReader {
 public:
  explicit CacheReader(std::span<const std::byte> bytes) : left_(bytes) {}

  /// Throws UserError: the bytes are not what was written.
  [[noreturn]] static void damaged(const std::string& found, const std::string& expected);

  template <typename T>
  T get() {
    T x{};
    get_all(std::span<T>(&x, 1));
    return x;
  }
  template <typename T>
  void get_all(std::span<T> xs) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto from = take(xs.size_bytes());
    if (!from.empty()) std::memcpy(xs.data(), from.data(), from.size());
  }
  /// So many numbers into a vector, in place of what it holds.
  template <typename Vector>
  void get_vector(Vector& xs, size_t count) {
    const auto from = take(count * sizeof(typename Vector::value_type));
    xs.resize(count);
    if (!from.empty()) std::memcpy(xs.data(), from.data(), from.size());
  }
  /// A count of things of which each takes at least `bytes_each`.
  int64_t get_count(int64_t bytes_each);
  std::span<const std::byte> take(size_t bytes);
  void get_numbers(std::span<float> xs, DType dtype);
  [[nodiscard]] bool empty() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
  std::vector<std::byte> numbers_;
};

/// Packed entries that a store can hold.
class Storable {
 public:
  virtual ~Storable() = default;
  virtual void save(CacheWriter& to) const = 0;
  /// Takes what save() wrote, into a segment without entries that its codec made beside an empty tail. Throws UserError
  /// on other bytes.
  virtual void load(CacheReader& from) = 0;
};

/// Original positions of entries: the first of a run, or those of each head, where they do not follow each other.
struct StoredPositions {
  int64_t first = 0;
  std::vector<std::vector<int32_t>> heads;  // [kv_heads][entries]; empty of a run

  void save(CacheWriter& to) const;
  [[nodiscard]] static StoredPositions load(CacheReader& from, int64_t kv_heads, int64_t entries);
};

}  // namespace kvarena
