#include "harness/model/json_section.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "harness/core/unique_keys.h"

namespace kvarena {
namespace {

using nlohmann::json;

std::shared_ptr<const json> parse_file(const std::filesystem::path& file) {
  try {
    const std::string text = read_file(file);
    require_shallow(text, file.string());
    require_unique_keys(text, file.string());
    auto content = std::make_shared<const json>(json::parse(text));
    if (!content->is_object()) fail({.place = file.string(), .found = "no JSON object", .expected = "{ ... }"});
    return content;
  } catch (const json::exception& error) {
    fail({.place = file.string(), .found = error.what(), .expected = "JSON"});
  }
}

}  // namespace

JsonSection::JsonSection(const std::filesystem::path& file)
    : place_(file.string()), root_(parse_file(file)), object_(root_.get()) {}

JsonSection::JsonSection(std::string place, std::shared_ptr<const json> root, const json& object)
    : place_(std::move(place)), root_(std::move(root)), object_(&object) {}

bool JsonSection::has(const char* key) const { return object_->contains(key) && !object_->at(key).is_null(); }

const json& JsonSection::at(const char* key) const {
  if (has(key)) return object_->at(key);
  if (object_->contains(key))
    fail({.place = fmt::format("{}: {}", place_, key), .found = "null", .expected = "a value"});
  std::vector<std::string> keys;
  for (const auto& item : object_->items()) keys.push_back(item.key());
  fail({.place = place_, .found = fmt::format("no key \"{}\"", key), .nearest = nearest_name(key, keys)});
}

int64_t JsonSection::integer(const char* key) const {
  const json& value = at(key);
  if (value.is_number_float()) {  // exporters sometimes write 32768.0
    const double number = value.get<double>();
    if (std::abs(number) < 1e15 && number == std::floor(number)) return static_cast<int64_t>(number);
  }
  if (!value.is_number_integer()) fail_value(key, "an integer");
  return value.get<int64_t>();
}

double JsonSection::number(const char* key) const {
  if (!at(key).is_number()) fail_value(key, "a number");
  return at(key).get<double>();
}

bool JsonSection::boolean(const char* key) const {
  if (!at(key).is_boolean()) fail_value(key, "true or false");
  return at(key).get<bool>();
}

std::string JsonSection::string(const char* key) const {
  if (!at(key).is_string()) fail_value(key, "a string");
  return at(key).get<std::string>();
}

int64_t JsonSection::integer(const char* key, int64_t absent) const { return has(key) ? integer(key) : absent; }
double JsonSection::number(const char* key, double absent) const { return has(key) ? number(key) : absent; }
bool JsonSection::boolean(const char* key, bool absent) const { return has(key) ? boolean(key) : absent; }
std::string JsonSection::string(const char* key, const char* absent) const { return has(key) ? string(key) : absent; }

std::vector<int64_t> JsonSection::integers(const char* key) const {
  if (!has(key)) return {};
  const json& value = at(key);
  if (value.is_number_integer()) return {value.get<int64_t>()};
  if (!value.is_array()) fail_value(key, "an integer or a list of integers");
  std::vector<int64_t> list;
  for (const json& item : value) {
    if (!item.is_number_integer()) fail_value(key, "an integer or a list of integers");
    list.push_back(item.get<int64_t>());
  }
  return list;
}

std::vector<std::string> JsonSection::strings(const char* key) const {
  if (!has(key)) return {};
  const json& value = at(key);
  if (!value.is_array()) fail_value(key, "a list of strings");
  std::vector<std::string> list;
  for (const json& item : value) {
    if (!item.is_string()) fail_value(key, "a list of strings");
    list.push_back(item.get<std::string>());
  }
  return list;
}

std::vector<double> JsonSection::numbers(const char* key) const {
  if (!has(key)) return {};
  const json& value = at(key);
  if (!value.is_array()) fail_value(key, "a list of numbers");
  std::vector<double> list;
  for (const json& item : value) {
    if (!item.is_number()) fail_value(key, "a list of numbers");
    list.push_back(item.get<double>());
  }
  return list;
}

JsonSection JsonSection::section(const char* key) const {
  if (!at(key).is_object()) fail_value(key, "an object");
  return {place_ + ": " + key, root_, at(key)};
}

void JsonSection::fail_value(const char* key, std::string_view expected) const {
  fail({.place = fmt::format("{}: {}", place_, key),
        .found = at(key).dump().substr(0, 60),
        .expected = std::string(expected)});
}

}  // namespace kvarena
