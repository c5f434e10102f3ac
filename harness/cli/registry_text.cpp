#include "harness/cli/registry_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kvarena::cli {
namespace {

using nlohmann::json;

std::string_view type_name(ParameterInfo::Type type) {
  switch (type) {
    case ParameterInfo::Type::boolean: return "boolean";
    case ParameterInfo::Type::integer: return "integer";
    case ParameterInfo::Type::number: return "number";
    case ParameterInfo::Type::string: return "string";
    case ParameterInfo::Type::list: return "list";
    case ParameterInfo::Type::word_or_list: return "word or list";
    case ParameterInfo::Type::method: return "method";
  }
  return "";
}

bool has_budget(const std::vector<ParameterInfo>& parameters) {
  return std::ranges::any_of(parameters, [](const ParameterInfo& info) { return info.name == "keep"; });
}

/// The first method with a budget: a stand-in where a method nests another.
const MethodEntry* budget_method() {
  for (const MethodEntry& entry : method_registry()) {
    if (entry.family == Family::compression && has_budget(entry.parameters())) return &entry;
  }
  return nullptr;
}

}  // namespace

json parameters_json(const std::vector<ParameterInfo>& parameters) {
  json list = json::array();
  for (const ParameterInfo& info : parameters) {
    json item{{"name", info.name}, {"type", type_name(info.type)}, {"doc", info.doc}, {"required", info.required}};
    if (!info.required) item["default"] = json::parse(info.default_json);
    if (info.min) item["min"] = *info.min;
    if (info.max) item["max"] = *info.max;
    if (info.above) item["above"] = *info.above;
    if (!info.choices.empty()) item["choices"] = info.choices;
    list.push_back(std::move(item));
  }
  return list;
}

Rows parameter_rows(const std::vector<ParameterInfo>& parameters) {
  Rows rows;
  for (const ParameterInfo& info : parameters) {
    std::string what = describe(info);
    if (!info.doc.empty()) what = fmt::format("{} ({})", info.doc, what);
    rows.push_back({info.name, std::move(what)});
  }
  return rows;
}

Rows fact_rows(const std::vector<std::pair<std::string, std::string>>& facts) {
  Rows rows;
  for (const auto& [key, value] : facts) {
    if (!value.empty()) rows.push_back({key, value});
  }
  return rows;
}

std::vector<std::string> needs_of(const MethodEntry& entry) {
  const Needs needs = entry.create()->needs();
  std::vector<std::string> list;
  if (needs.prompt_attention) list.emplace_back("attention from all prompt queries");
  for (const auto& statistic : needs.statistics)
    list.push_back(fmt::format("{} over all prompt queries", statistic->id()));
  if (needs.window > 0) {
    list.push_back(fmt::format("attention from the last {} prompt queries", needs.window));
  }
  if (needs.step_attention) list.emplace_back("attention of every decode step");
  if (needs.hidden) list.emplace_back("hidden states of the prompt");
  if (needs.output_projection) list.emplace_back("the attention's output projection");
  return list;
}

json example_settings(const MethodEntry& entry) {
  json settings{{"name", entry.info.name}};
  const auto parameters = entry.parameters();
  if (has_budget(parameters)) settings["keep"] = 0.25;
  for (const ParameterInfo& info : parameters) {
    if (!info.required || info.type != ParameterInfo::Type::method) continue;
    if (const MethodEntry* nested = budget_method()) settings[info.name] = example_settings(*nested);
  }
  return check_method(settings, "").empty() ? settings : json();
}

std::string short_form(const json& settings) {
  std::string text;
  for (const auto& [key, value] : settings.items()) {
    if (key == "name") continue;
    const std::string shown = value.is_object()   ? fmt::format("({})", short_form(value))
                              : value.is_string() ? value.get<std::string>()
                                                  : value.dump();
    text += fmt::format("{}{}={}", text.empty() ? ":" : ",", key, shown);
  }
  return fmt::format("{}{}", settings.at("name").get_ref<const std::string&>(), text);
}

std::string config_form(const json& settings) {
  if (!settings.is_object()) return settings.dump();
  std::vector<std::string> members;
  for (const auto& [key, value] : settings.items()) {
    std::string member = fmt::format("{}: {}", json(key).dump(), config_form(value));
    members.insert(key == "name" ? members.begin() : members.end(), std::move(member));
  }
  return fmt::format("{{{}}}", fmt::join(members, ", "));
}

std::string example_method() {
  const MethodEntry* entry = budget_method();
  return entry == nullptr ? "NAME" : short_form(example_settings(*entry));
}

}  // namespace kvarena::cli
