// Metadata values of a GGUF file, read from where they lie.

#include <fmt/format.h>

#include <cstring>

#include "harness/core/error.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

template <class T>
T read_number(std::span<const std::byte> bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

std::optional<int64_t> integer_at(const GgufValue& value, uint64_t index) {
  switch (value.type) {
    case GgufType::u8: return read_number<uint8_t>(value.bytes, index);
    case GgufType::i8: return read_number<int8_t>(value.bytes, index);
    case GgufType::u16: return read_number<uint16_t>(value.bytes, index);
    case GgufType::i16: return read_number<int16_t>(value.bytes, index);
    case GgufType::u32: return read_number<uint32_t>(value.bytes, index);
    case GgufType::i32: return read_number<int32_t>(value.bytes, index);
    case GgufType::u64: {
      const auto number = read_number<uint64_t>(value.bytes, index);
      if (number > INT64_MAX) return std::nullopt;
      return static_cast<int64_t>(number);
    }
    case GgufType::i64: return read_number<int64_t>(value.bytes, index);
    case GgufType::f32:
    case GgufType::f64:
    case GgufType::boolean:
    case GgufType::string:
    case GgufType::array: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> GgufFile::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : metadata_) names.push_back(key);
  return names;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

void GgufFile::fail_missing(std::string_view key) const {
  fail({.place = path().string(),
        .found = fmt::format("no metadata {}", key),
        .nearest = nearest_name(key, keys()),
        .action = "Convert the model again with a converter that writes it."});
}

void GgufFile::fail_type(std::string_view key, std::string_view expected) const {
  fail({.place = fmt::format("{}: metadata {}", path().string(), key),
        .found = "a value of another type",
        .expected = std::string(expected)});
}

std::optional<int64_t> GgufFile::find_int(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = value->is_array ? std::nullopt : integer_at(*value, 0);
  if (!number) fail_type(key, "an integer");
  return number;
}

std::optional<double> GgufFile::find_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array && value->type == GgufType::f32) return read_number<float>(value->bytes, 0);
  if (!value->is_array && value->type == GgufType::f64) return read_number<double>(value->bytes, 0);
  fail_type(key, "a floating-point number");
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || value->type != GgufType::boolean) fail_type(key, "true or false");
  return value->bytes[0] != std::byte{0};
}

std::optional<std::string> GgufFile::find_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || value->type != GgufType::string) fail_type(key, "a string");
  return std::string(reinterpret_cast<const char*>(value->bytes.data()) + 8, value->bytes.size() - 8);
}

int64_t GgufFile::get_int(std::string_view key) const {
  const std::optional<int64_t> value = find_int(key);
  if (!value) fail_missing(key);
  return *value;
}

double GgufFile::get_float(std::string_view key) const {
  const std::optional<double> value = find_float(key);
  if (!value) fail_missing(key);
  return *value;
}

bool GgufFile::get_bool(std::string_view key) const {
  const std::optional<bool> value = find_bool(key);
  if (!value) fail_missing(key);
  return *value;
}

std::string GgufFile::get_string(std::string_view key) const {
  std::optional<std::string> value = find_string(key);
  if (!value) fail_missing(key);
  return *std::move(value);
}

std::vector<std::string_view> GgufFile::find_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array || value->type != GgufType::string) fail_type(key, "an array of strings");
  std::vector<std::string_view> strings;
  strings.reserve(value->count);
  const auto* at = reinterpret_cast<const char*>(value->bytes.data());
  for (uint64_t i = 0; i < value->count; ++i) {
    uint64_t length = 0;
    std::memcpy(&length, at, sizeof length);
    strings.emplace_back(at + sizeof length, length);
    at += sizeof length + length;
  }
  return strings;
}

std::vector<int64_t> GgufFile::find_ints(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array) fail_type(key, "an array of integers");
  std::vector<int64_t> numbers;
  numbers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> number = integer_at(*value, i);
    if (!number) fail_type(key, "an array of integers");
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<float> GgufFile::find_floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array || value->type != GgufType::f32) fail_type(key, "an array of f32");
  std::vector<float> numbers(value->count);
  if (!numbers.empty()) std::memcpy(numbers.data(), value->bytes.data(), value->bytes.size());
  return numbers;
}

}  // namespace kvarena
