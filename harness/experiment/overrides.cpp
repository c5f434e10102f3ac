#include "harness/experiment/overrides.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "harness/experiment/expand.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;

/// "methods[1].keep" -> methods, 1, keep; empty when malformed.
std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < path.size(); ++i) {
    const char c = path[i];
    if (c == '.' || c == '[') {
      if (parts.back().empty()) return {};
      parts.emplace_back();
    } else if (c == ']') {
      if (i + 1 < path.size() && path[i + 1] != '.' && path[i + 1] != '[') return {};
    } else {
      parts.back() += c;
    }
  }
  return parts.back().empty() ? std::vector<std::string>{} : parts;
}

std::optional<size_t> as_index(const std::string& part) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (error != std::errc() || end != part.data() + part.size()) return std::nullopt;
  return index;
}

/// Whether a list's entry has this name or label.
bool is_called(const json& entry, const std::string& word) {
  if (entry.is_string()) return entry == word;
  return entry.is_object() &&
         ((entry.contains("name") && entry["name"] == word) || (entry.contains("label") && entry["label"] == word));
}

/// Lets the label of a changed method or workload tell what was set at `path`: a label that stayed would stand for two
/// settings, of which the later one replaces the other's cells.
void relabel(json& entry, const std::string& path) {
  constexpr std::array<std::string_view, 5> kNoSettings = {"label", "limit", "baseline", "matrix", "models"};
  const std::string_view key = std::string_view(path).substr(0, path.find('.'));
  if (!entry.is_object() || !entry.contains("label") || !entry["label"].is_string()) return;
  if (std::ranges::find(kNoSettings, key) != kNoSettings.end()) return;
  if (key == "name") {
    entry.erase("label");
    return;
  }
  auto& label = entry["label"].get_ref<std::string&>();
  if (label_tells(label, path)) return;
  const bool more = label.ends_with("}]");
  if (more) label.pop_back();
  label += fmt::format("{0}{1}={{{1}}}]", more ? ", " : " [", path);
}

/// Applies one --set; returns its problem, "" when there is none.
class Setter {
 public:
  Setter(const std::string& option, std::vector<std::string> parts, json value)
      : place_("--set " + option), parts_(std::move(parts)), value_(std::move(value)) {}

  std::string apply(json& node, size_t depth = 0) {
    if (depth == parts_.size()) {
      node = value_;
      return "";
    }
    if (node.is_array()) return into_list(node, depth);
    if (node.is_null()) node = json::object();
    if (!node.is_object()) {
      return describe({.place = place_,
                       .found = fmt::format("{} where the path goes on", brief(node)),
                       .expected = "an object or a list"});
    }
    const std::string& key = parts_[depth];
    if (depth + 1 == parts_.size() && node.contains("matrix") && node["matrix"].is_object()) {
      node["matrix"].erase(key);
      if (node["matrix"].empty()) node.erase("matrix");
    }
    return apply(node[key], depth + 1);
  }

 private:
  std::string into_entry(json& entry, size_t depth) {
    // "snapkv" is short for {"name": "snapkv"}
    if (entry.is_string() && depth < parts_.size()) entry = json{{"name", entry}};
    const json before = entry;
    std::string problem = apply(entry, depth);
    const bool labelled = depth == 2 && depth < parts_.size() && (parts_[0] == "methods" || parts_[0] == "workloads");
    if (labelled && problem.empty() && entry != before) {
      relabel(entry, fmt::format("{}", fmt::join(parts_.begin() + 2, parts_.end(), ".")));
    }
    return problem;
  }

  /// Joins the parts from `depth` that together are the name of an entry, which may hold dots: as many as do.
  void join_name(const json& list, size_t depth) {
    for (size_t end = parts_.size(); end > depth + 1; --end) {
      const auto first = parts_.begin() + static_cast<std::ptrdiff_t>(depth);
      const auto last = parts_.begin() + static_cast<std::ptrdiff_t>(end);
      const std::string name = fmt::format("{}", fmt::join(first, last, "."));
      if (std::ranges::none_of(list, [&](const json& entry) { return is_called(entry, name); })) continue;
      *first = name;
      parts_.erase(first + 1, last);
      return;
    }
  }

  std::string into_list(json& list, size_t depth) {
    join_name(list, depth);
    const std::string& part = parts_[depth];
    if (const auto index = as_index(part)) {
      if (*index < list.size()) return into_entry(list[*index], depth + 1);
      if (*index > list.size() || depth + 1 < parts_.size()) {
        return describe({.place = place_,
                         .found = fmt::format("number {}", part),
                         .expected = fmt::format("0 to {}", static_cast<int64_t>(list.size()) - 1)});
      }
      list.push_back(value_);
      return "";
    }
    std::vector<std::string> names;
    bool met = false;
    for (json& entry : list) {
      if (is_called(entry, part)) {
        met = true;
        if (std::string problem = into_entry(entry, depth + 1); !problem.empty()) return problem;
      } else if (entry.is_object() && entry.contains("name") && entry["name"].is_string()) {
        names.push_back(entry["name"]);
      } else if (entry.is_string()) {
        names.push_back(entry);
      }
    }
    if (met) return "";
    return describe({.place = place_,
                     .found = fmt::format("\"{}\"", part),
                     .expected = "a number or the name of an entry",
                     .nearest = nearest_name(part, names)});
  }

  std::string place_;
  std::vector<std::string> parts_;
  json value_;
};

}  // namespace

std::vector<std::string> apply_overrides(json& config, const Overrides& overrides) {
  std::vector<std::string> problems;
  if (!overrides.models.empty()) config["models"] = overrides.models;  // before settings of theirs
  for (const std::string& option : overrides.set) {
    const size_t equals = option.find('=');
    std::vector<std::string> parts;
    if (equals != std::string::npos) parts = split_path(option.substr(0, equals));
    if (parts.empty()) {
      problems.push_back(
          describe({.place = "--set " + option, .found = "no key.path=value", .expected = "engine.seed=3"}));
      continue;
    }
    const std::string text = option.substr(equals + 1);
    json value = json::parse(text, nullptr, false);
    if (value.is_discarded()) value = text;
    const std::string problem = Setter(option, std::move(parts), std::move(value)).apply(config);
    if (!problem.empty()) problems.push_back(problem);
  }
  if (overrides.limit && config.contains("workloads") && config["workloads"].is_array()) {
    for (json& entry : config["workloads"]) {
      if (entry.is_string()) entry = json{{"name", entry}};
      if (entry.is_object()) entry["limit"] = *overrides.limit;
    }
  }
  if (overrides.database) config["output"]["database"] = *overrides.database;
  return problems;
}

std::string report_of(const results::RunRecord& run) {
  json config = json::parse(run.config_text, nullptr, /*allow_exceptions=*/false);
  const json given = json::parse(run.overrides_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !given.is_object()) return "";
  (void)apply_overrides(config, {.set = given.value("set", std::vector<std::string>())});
  return config.value(json::json_pointer("/output/report"), "");
}

std::string overrides_json(const Overrides& overrides) {
  json record = json::object();
  if (!overrides.set.empty()) record["set"] = overrides.set;
  if (!overrides.models.empty()) record["model"] = overrides.models;
  if (overrides.limit) record["limit"] = *overrides.limit;
  if (overrides.database) record["database"] = *overrides.database;
  return json_text(record);
}

}  // namespace kvarena::experiment
