#include "harness/experiment/schema.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/experiment/config.h"
#include "harness/experiment/config_parts.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;
using Type = ParameterInfo::Type;

/// A JSON pointer (RFC 6901): the slash of "longbench/qasper" would lead into a member.
json reference(const std::string& definition) {
  return {{"$ref", fmt::format("#{}", (json::json_pointer("/$defs") / definition).to_string())}};
}
json list_of(const json& items) { return {{"type", "array"}, {"minItems", 1}, {"items", items}}; }

/// A whole number as a JSON integer: 1, not 1.0.
json number(double value) {
  return std::floor(value) == value && std::abs(value) < 1e15 ? json(static_cast<int64_t>(value)) : json(value);
}

void add_range(json& schema, const ParameterInfo& info) {
  if (info.min) schema["minimum"] = number(*info.min);
  if (info.max) schema["maximum"] = number(*info.max);
  if (info.above) schema["exclusiveMinimum"] = number(*info.above);
}

json value_schema(const ParameterInfo& info) {
  json schema = json::object();
  switch (info.type) {
    case Type::boolean: schema["type"] = "boolean"; break;
    case Type::integer: schema["type"] = "integer"; break;
    case Type::number: schema["type"] = "number"; break;
    case Type::string: schema["type"] = "string"; break;
    case Type::list: schema = {{"type", "array"}, {"items", {{"type", "number"}}}}; break;
    case Type::word_or_list:
      schema["anyOf"] = {{{"enum", info.choices}}, {{"type", "array"}, {"items", {{"type", "integer"}}}}};
      break;
    case Type::method: schema = reference("component"); break;
  }
  add_range(info.type == Type::list ? schema["items"] : schema, info);
  if (!info.choices.empty() && info.type != Type::word_or_list) schema["enum"] = info.choices;
  if (!info.doc.empty()) schema["description"] = info.doc;
  const json standard = json::parse(info.default_json);
  if (!info.required && !standard.is_null()) schema["default"] = standard;
  return schema;
}

json properties_of(const std::vector<ParameterInfo>& parameters) {
  json properties = json::object();
  for (const ParameterInfo& info : parameters) properties[info.name] = value_schema(info);
  return properties;
}

/// An object that has exactly these parameters.
json group_schema(const std::vector<ParameterInfo>& parameters) {
  json schema = {{"type", "object"}, {"additionalProperties", false}, {"properties", properties_of(parameters)}};
  for (const ParameterInfo& info : parameters) {
    if (info.required) schema["required"].push_back(info.name);
  }
  return schema;
}

template <typename Settings>
json settings_schema() {
  Settings settings;
  return group_schema(list_parameters([&](ParameterVisitor& p) { settings.parameters(p); }));
}

/// An entry with this component's name: its parameters, ours beside them. A required parameter may come from the
/// matrix, so the schema does not insist on it.
json component_schema(const ComponentInfo& component, const json& ours) {
  json schema = {{"type", "object"},
                 {"additionalProperties", false},
                 {"required", {"name"}},
                 {"properties", properties_of(component.parameters)}};
  schema["properties"].update(ours);
  schema["properties"]["name"] = {{"const", component.name}};
  if (!component.doc.empty()) schema["description"] = component.doc;
  return schema;
}

/// The definitions of one family and the schema of its list.
json family_schema(json& definitions, const std::string& family, const std::vector<ComponentInfo>& components,
                   const json& ours) {
  json names = json::array();
  json choices = json::array();
  for (const ComponentInfo& component : components) {
    const std::string definition = family + "." + component.name;
    definitions[definition] = component_schema(component, ours);
    names.push_back(component.name);
    choices.push_back({{"if", {{"properties", {{"name", {{"const", component.name}}}}}, {"required", {"name"}}}},
                       {"then", reference(definition)}});
  }
  json entry = {{"type", "object"}, {"required", {"name"}}, {"properties", {{"name", {{"enum", names}}}}}};
  if (!choices.empty()) entry["allOf"] = std::move(choices);
  const json name = {{"type", "string"}, {"enum", names}};
  // A choice by type, so that an editor's message speaks of the entry that was meant.
  return list_of({{"if", {{"type", "string"}}}, {"then", name}, {"else", std::move(entry)}});
}

json model_schema() {
  ModelEntry model;
  json schema = group_schema(list_parameters([&](ParameterVisitor& p) { model.parameters(p); }));
  for (const char* own : {"name", "label"}) schema["properties"][own] = {{"type", "string"}, {"minLength", 1}};
  schema["required"] = {"name"};
  schema["properties"]["path"].erase("default");
  return list_of({{"if", {{"type", "string"}}}, {"then", {{"type", "string"}}}, {"else", std::move(schema)}});
}

json table_schema() {
  const json dimension = {{"enum", {"experiment", "model", "workload", "method", "metric"}}};
  const json dimensions = {{"anyOf", {dimension, {{"type", "array"}, {"items", dimension}}}}};
  return {
      {"type", "object"},
      {"additionalProperties", false},
      {"properties",
       {{"rows", dimensions},
        {"columns", dimensions},
        {"cell",
         {{"type", "string"},
          {"description",
           "names in braces: mean, interval (half its width), low, high, n, difference, published; \\n begins a line, "
           "and what a cell lacks is left out"}}},
        {"average", {{"type", "boolean"}, {"description", "one more column: the mean over the others"}}}}}};
}

json published_schema() {
  const json text = {{"type", "string"}};
  const json value = {{"type", "number"}};
  const json about = {{"metric", text},
                      {"unit", text},
                      {"statistic", {{"type", "string"}, {"enum", statistic_names()}, {"default", "mean"}}},
                      {"bound", {{"type", "string"}, {"enum", results::kBounds}}},
                      {"upper", value},
                      {"against", list_of(text)},
                      {"source", text},
                      {"note", text}};
  json one = {{"type", "object"},
              {"additionalProperties", false},
              {"required", {"model", "workload", "method", "metric", "value", "source"}},
              {"properties", about}};
  one["properties"].update({{"model", text}, {"workload", text}, {"method", text}, {"value", value}});
  const json numbers = {{"type", "array"}, {"items", {{"type", {"number", "null"}}}}};
  const json row = {{"type", "object"},
                    {"additionalProperties", false},
                    {"required", {"model", "method", "values"}},
                    {"properties", {{"model", text}, {"method", text}, {"values", numbers}}}};
  json block = {{"type", "object"},
                {"additionalProperties", false},
                {"required", {"metric", "source", "workloads", "rows"}},
                {"properties", about}};
  block["properties"].update({{"workloads", list_of(text)}, {"rows", list_of(row)}});
  return {{"type", "array"}, {"items", {{"if", {{"required", {"rows"}}}}, {"then", block}, {"else", one}}}};
}

}  // namespace

json config_schema(const Components& components) {
  // Another component inside a method. Its name may come from the matrix; which parameters it takes is checked when the
  // config is read.
  json definitions = {
      {"component", {{"type", {"string", "object"}}, {"properties", {{"name", {{"type", "string"}}}}}}}};
  const json lists = {{"type", "object"}, {"additionalProperties", {{"type", "array"}, {"minItems", 1}}}};
  const json label = {{"type", "string"}, {"minLength", 1}, {"description", "may name settings in braces"}};
  json shared = {{"label", label}, {"matrix", lists}};
  shared["matrix"]["description"] = "settings with lists of values: one entry for each combination";
  json of_workloads = shared;
  of_workloads["limit"] = {{"type", "integer"}, {"minimum", 1}, {"description", "at most so many samples"}};
  json questions;
  for (const Question question : kQuestions) questions.push_back(name(question));
  of_workloads["question"] = {{"enum", questions},
                              {"description",
                               "whether methods compress the prompt with its question (seen), or the context alone, of "
                               "which each question is asked then on a copy (unseen), or one after the other (turns; "
                               "first_seen compresses the first with the context); absent = unseen where samples say "
                               "where their question starts"}};
  of_workloads["request_tokens"] = {{"type", "array"},
                                    {"items", {{"type", "integer"}, {"minimum", 1}}},
                                    {"minItems", 2},
                                    {"maxItems", 2},
                                    {"description",
                                     "[prompt, answer]: timed requests of exactly so many tokens, whatever the "
                                     "samples' own; nothing else is evaluated"}};
  json of_methods = shared;
  of_methods["baseline"] = {{"type", "boolean"}, {"description", "what the others are paired with; else the first"}};
  of_methods["models"] = {{"type", "array"},
                          {"items", {{"type", "string"}}},
                          {"minItems", 1},
                          {"description", "labels of the models that it runs on; absent = all"}};

  const json requests = {{"type", "integer"}, {"minimum", 1}};
  const json by_model = {{"type", "object"}, {"additionalProperties", requests}};
  const json by_workload = {{"type", "object"}, {"additionalProperties", {{"anyOf", {requests, by_model}}}}};
  of_methods["batch"] = {{"anyOf", {requests, by_workload}},
                         {"description",
                          "requests that are timed together, instead of timing.batch; or by the workload's label, and "
                          "there by the model's"}};

  json contexts = settings_schema<ContextSettings>();
  json properties = {{"$schema", {{"type", "string"}}},
                     {"name", {{"type", "string"}, {"minLength", 1}}},
                     {"title", {{"type", "string"}}},
                     {"models", model_schema()},
                     {"workloads", family_schema(definitions, "workload", components.workloads, of_workloads)},
                     {"methods", family_schema(definitions, "method", components.methods, of_methods)},
                     {"metrics", family_schema(definitions, "metric", components.metrics, shared)},
                     {"engine", settings_schema<EngineSettings>()},
                     {"timing", settings_schema<TimingSettings>()},
                     {"remote_prefix", settings_schema<RemotePrefixSettings>()},
                     {"serving", settings_schema<ServingSettings>()},
                     {"contexts", std::move(contexts)},
                     {"output", settings_schema<OutputSettings>()},
                     {"table", table_schema()},
                     {"published", published_schema()}};
  properties["metrics"].erase("minItems");
  properties["contexts"]["properties"]["forms"] = properties["methods"];
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"title", "kvarena experiment"},
          {"type", "object"},
          {"additionalProperties", false},
          {"required", {"name", "models", "workloads", "methods"}},
          {"properties", std::move(properties)},
          {"$defs", std::move(definitions)}};
}

}  // namespace kvarena::experiment
