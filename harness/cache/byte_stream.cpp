#include "harness/cache/byte_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {

void CacheWriter::put_bytes(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::span<std::byte> CacheWriter::grow(size_t bytes) {
  bytes_.resize(bytes_.size() + bytes);
  return std::span(bytes_).last(bytes);
}

void CacheWriter::put_numbers(std::span<const float> xs, DType dtype) {
  if (dtype == DType::f32) return put_all(xs);
  halves_.clear();
  for (const float x : xs) halves_.push_back(kernels::f32_to_half(x, dtype));
  put_all(std::span<const uint16_t>(halves_));
}

void CacheReader::damaged(const std::string& found, const std::string& expected) {
  fail({.place = "stored cache",
        .found = found,
        .expected = expected,
        .action = "it is of another model, or was cut; compute it anew"});
}

int64_t CacheReader::get_count(int64_t bytes_each) {
  const auto count = get<int64_t>();
  const auto left = static_cast<int64_t>(left_.size());
  if (count < 0 || count > left / bytes_each) damaged(fmt::format("{} entries", count), "as many as there are bytes");
  return count;
}

std::span<const std::byte> CacheReader::take(size_t bytes) {
  if (bytes > left_.size()) damaged(fmt::format("{} bytes left", left_.size()), fmt::format("{} more", bytes));
  const auto taken = left_.first(bytes);
  left_ = left_.subspan(bytes);
  return taken;
}

void CacheReader::get_numbers(std::span<float> xs, DType dtype) {
  const auto from = take(xs.size() * static_cast<size_t>(kernels::size_of(dtype)));
  if (from.empty()) return;
  numbers_.resize(from.size());  // aligned, as what lies behind a mark of one byte is not
  std::ranges::copy(from, numbers_.begin());
  for (size_t i = 0; i < xs.size(); ++i) {
    xs[i] = kernels::load_element(numbers_.data(), dtype, static_cast<int64_t>(i));
  }
}

void StoredPositions::save(CacheWriter& to) const {
  to.put<uint8_t>(heads.empty() ? 0 : 1);
  to.put<int64_t>(first);
  for (const auto& head : heads) to.put_all(std::span<const int32_t>(head));
}

StoredPositions StoredPositions::load(CacheReader& from, int64_t kv_heads, int64_t entries) {
  StoredPositions positions;
  const bool run = from.get<uint8_t>() == 0;
  positions.first = from.get<int64_t>();
  for (int64_t head = 0; head < kv_heads && !run; ++head) {
    from.get_vector(positions.heads.emplace_back(), static_cast<size_t>(entries));
  }
  return positions;
}

}  // namespace kvarena
