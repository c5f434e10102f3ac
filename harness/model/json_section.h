#pragma once
// One JSON object of a description file, read key by key with errors that name file, section and key.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena {

/// One object; a null counts as absent, as in the reference library. Getters without a default throw UserError when the
/// key is missing (with the nearest one that is there); all of them when the value has another type.
class JsonSection {
 public:
  /// The object in `file`. Throws UserError when it cannot be read or holds something else.
  explicit JsonSection(const std::filesystem::path& file);

  [[nodiscard]] bool has(const char* key) const;
  [[nodiscard]] int64_t integer(const char* key) const;
  [[nodiscard]] double number(const char* key) const;
  [[nodiscard]] bool boolean(const char* key) const;
  [[nodiscard]] std::string string(const char* key) const;
  [[nodiscard]] int64_t integer(const char* key, int64_t absent) const;
  [[nodiscard]] double number(const char* key, double absent) const;
  [[nodiscard]] bool boolean(const char* key, bool absent) const;
  [[nodiscard]] std::string string(const char* key, const char* absent) const;
  /// A list, or one value as a list of one; empty when absent.
  [[nodiscard]] std::vector<int64_t> integers(const char* key) const;
  [[nodiscard]] std::vector<std::string> strings(const char* key) const;
  [[nodiscard]] std::vector<double> numbers(const char* key) const;
  /// The object under `key`.
  [[nodiscard]] JsonSection section(const char* key) const;

  /// Place of this object in messages: the file, then the keys that lead here.
  [[nodiscard]] const std::string& place() const { return place_; }
  /// Throws UserError about the value of `key`.
  [[noreturn]] void fail_value(const char* key, std::string_view expected) const;

 private:
  JsonSection(std::string place, std::shared_ptr<const nlohmann::json> root, const nlohmann::json& object);
  [[nodiscard]] const nlohmann::json& at(const char* key) const;

  std::string place_;
  std::shared_ptr<const nlohmann::json> root_;  // owns what object_ points into
  const nlohmann::json* object_;
};

}  // namespace kvarena
