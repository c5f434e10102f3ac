#pragma once
// Writes GGUF files for tests: numbers, texts and float32 tensors.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::testing {

class GgufWriter {
 public:
  GgufWriter& text(std::string_view key, std::string_view value) {
    entry(key, 8);
    append(metadata_, value);
    return *this;
  }
  GgufWriter& integer(std::string_view key, int64_t value) {
    entry(key, 4);
    number(metadata_, static_cast<uint32_t>(value));
    return *this;
  }
  GgufWriter& real(std::string_view key, double value) {
    entry(key, 6);
    number(metadata_, static_cast<float>(value));
    return *this;
  }
  GgufWriter& boolean(std::string_view key, bool value) {
    entry(key, 7);
    number(metadata_, static_cast<uint8_t>(value));
    return *this;
  }
  /// `shape` outermost first.
  GgufWriter& tensor(std::string_view name, const std::vector<int64_t>& shape, const std::vector<float>& values) {
    append(table_, name);
    number(table_, static_cast<uint32_t>(shape.size()));
    for (auto size = shape.rbegin(); size != shape.rend(); ++size) number(table_, static_cast<uint64_t>(*size));
    number(table_, uint32_t{0});
    number(table_, static_cast<uint64_t>(data_.size()));
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    data_.resize((data_.size() + kAlignment - 1) / kAlignment * kAlignment);
    ++tensors_;
    return *this;
  }
  void write(const std::filesystem::path& path) const {
    std::string head = "GGUF";
    number(head, uint32_t{3});
    number(head, tensors_);
    number(head, entries_);
    head += metadata_ + table_;
    head.resize((head.size() + kAlignment - 1) / kAlignment * kAlignment);
    std::ofstream(path, std::ios::binary) << head << data_;
  }

 private:
  static constexpr size_t kAlignment = 32;

  template <class T>
  static void number(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void append(std::string& to, std::string_view text) {
    number(to, static_cast<uint64_t>(text.size()));
    to += text;
  }
  void entry(std::string_view key, uint32_t type) {
    append(metadata_, key);
    number(metadata_, type);
    ++entries_;
  }

  std::string metadata_;
  std::string table_;
  std::string data_;
  uint64_t entries_ = 0;
  uint64_t tensors_ = 0;
};

}  // namespace kvarena::testing
