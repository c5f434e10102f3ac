#include "harness/experiment/expand.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/json_text.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;

constexpr size_t kMostCombinations = 10'000;

/// The JSON pointer of a dotted key: "drafter.keep" -> /drafter/keep.
json::json_pointer pointer_to(const std::string& key) {
  json::json_pointer pointer;
  size_t begin = 0;
  while (true) {
    const size_t dot = key.find('.', begin);
    pointer /= key.substr(begin, dot == std::string::npos ? dot : dot - begin);
    if (dot == std::string::npos) return pointer;
    begin = dot + 1;
  }
}

/// A value as part of a label: text without quotes, a component as name(settings).
std::string label_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object() || !value.contains("name") || !value["name"].is_string()) return value.dump();
  std::string settings;
  for (const auto& [key, inner] : value.items()) {
    if (key != "name") settings += fmt::format("{}{}={}", settings.empty() ? "" : " ", key, label_text(inner));
  }
  const auto name = value["name"].get<std::string>();
  return settings.empty() ? name : fmt::format("{}({})", name, settings);
}

/// Checks the matrix itself; returns its problems.
std::vector<std::string> check_matrix(const json& entry, const std::string& place) {
  const json& matrix = entry["matrix"];
  const std::string where = place + ".matrix";
  if (!matrix.is_object()) {
    return {
        describe({.place = where, .found = brief(matrix), .expected = R"(an object such as {"keep": [0.25, 0.5]})"})};
  }
  std::vector<std::string> problems;
  size_t combinations = 1;
  for (const auto& [key, values] : matrix.items()) {
    const std::string at = fmt::format("{}.{}", where, key);
    if (!values.is_array() || values.empty()) {
      problems.push_back(describe({.place = at, .found = brief(values), .expected = "a list of at least one value"}));
      continue;
    }
    if (entry.contains(pointer_to(key)) || key == "name" || key == "label" || key == "matrix") {
      problems.push_back(describe({.place = at,
                                   .found = fmt::format("\"{}\", which the entry itself sets", key),
                                   .expected = "each setting once"}));
    }
    combinations = std::min(combinations * values.size(), kMostCombinations + 1);
  }
  if (combinations > kMostCombinations) {
    problems.push_back(describe({.place = where, .found = "too many combinations", .expected = "at most 10000"}));
  }
  return problems;
}

}  // namespace

std::vector<json> expand_matrix(const json& entry, const std::string& place, std::vector<std::string>& problems) {
  if (!entry.contains("matrix")) return {entry};
  if (auto found = check_matrix(entry, place); !found.empty()) {
    problems.insert(problems.end(), found.begin(), found.end());
    return {};
  }
  json base = entry;
  base.erase("matrix");
  std::vector<json> expanded = {base};
  for (const auto& [key, values] : entry["matrix"].items()) {
    std::vector<json> longer;
    for (const json& before : expanded) {
      for (const json& value : values) {
        json next = before;
        try {
          next[pointer_to(key)] = value;
        } catch (const json::exception&) {
          problems.push_back(describe({.place = fmt::format("{}.matrix.{}", place, key),
                                       .found = "a path through something that is no object",
                                       .expected = "the path of a setting"}));
          return {};
        }
        longer.push_back(std::move(next));
      }
    }
    expanded = std::move(longer);
  }
  return expanded;
}

std::string automatic_label(const std::string& name, const json& settings) {
  std::string label = name;
  for (const auto& [key, value] : settings.items()) label += fmt::format(" {}={}", key, label_text(value));
  return label;
}

bool label_tells(const std::string& label, const std::string& key) {
  for (size_t end = key.find('.');; end = key.find('.', end + 1)) {
    if (label.find(fmt::format("{{{}}}", key.substr(0, end))) != std::string::npos) return true;
    if (end == std::string::npos) return false;
  }
}

std::string fill_label(const std::string& label, const json& settings, const std::string& place,
                       std::vector<std::string>& problems) {
  std::string filled;
  for (size_t i = 0; i < label.size(); ++i) {
    const size_t close = label[i] == '{' ? label.find('}', i) : std::string::npos;
    if (close == std::string::npos) {
      filled += label[i];
      continue;
    }
    const std::string key = label.substr(i + 1, close - i - 1);
    if (key.empty() || !settings.contains(pointer_to(key))) {
      problems.push_back(describe({.place = place + ".label",
                                   .found = fmt::format("{{{}}}", key),
                                   .expected = "the name of a setting that the entry gives"}));
    } else {
      filled += label_text(settings.at(pointer_to(key)));
    }
    i = close;
  }
  return filled;
}

}  // namespace kvarena::experiment
