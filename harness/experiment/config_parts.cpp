#include "harness/experiment/config_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"
#include "harness/core/json_text.h"
#include "harness/experiment/expand.h"
#include "harness/experiment/method_batch.h"
#include "harness/results/changed_label.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string kind_name(ComponentKind kind) {
  switch (kind) {
    case ComponentKind::workloads: return "workloads";
    case ComponentKind::methods: return "methods";
    case ComponentKind::metrics: return "metrics";
    case ComponentKind::forms: return "contexts.forms";
  }
  return "";
}

/// Reads a list; a missing one is a problem where it is needed.
bool is_list(const json& list, const std::string& key, bool required, Problems& problems) {
  if (list.is_null() && !required) return false;
  if (list.is_array() && (!list.empty() || !required)) return true;
  problems.add(key, list.is_null() ? "nothing" : brief(list), "a list with at least one entry");
  return false;
}

/// "qasper" -> {"name": "qasper"}; null with a problem when the entry has no name.
json with_name(const json& entry, const std::string& key, Problems& problems) {
  if (entry.is_string()) return json{{"name", entry}};
  if (entry.is_object() && entry.contains("name") && entry["name"].is_string()) return entry;
  problems.add(key, brief(entry), "a name, or an object with a \"name\"");
  return nullptr;
}

/// Removes a key of the framework's from an entry and returns its value.
json take(json& entry, const char* key) {
  json value = entry.value(key, json());
  entry.erase(key);
  return value;
}

std::string take_label(json& entry, const std::string& key, Problems& problems) {
  const json label = take(entry, "label");
  if (label.is_null()) return "";
  if (label.is_string() && !label.get_ref<const std::string&>().empty()) return label.get<std::string>();
  problems.add(key + ".label", brief(label), "a string that is not empty");
  return "";
}

/// Checks that a label written beside a matrix tells every setting that the matrix sweeps.
void check_matrix_label(const json& entry, const std::string& key, Problems& problems) {
  const json label = entry.value("label", json());
  const json matrix = entry.value("matrix", json());
  if (!label.is_string() || !matrix.is_object()) return;
  for (const auto& [swept, values] : matrix.items()) {
    if (label_tells(label.get<std::string>(), swept)) continue;
    problems.add(key + ".label", fmt::format("\"{}\", which does not tell {}", label.get<std::string>(), swept),
                 "every setting of the matrix in the label", "",
                 fmt::format("write {{{}}} into it, or leave it out", swept));
  }
}

template <typename Entry>
void check_labels(const std::vector<Entry>& entries, const std::string& key, Problems& problems) {
  std::set<std::string> labels;
  for (const Entry& entry : entries) {
    if (labels.insert(entry.label).second) continue;
    problems.add(key, fmt::format("\"{}\" twice", entry.label), "a label of its own for each entry", "",
                 "give \"label\"; with a matrix write settings into it, as in \"mine {keep}\"");
  }
}

std::vector<std::string> known_models(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder, ignored)) {
    if (file.path().extension() == ".json") names.push_back(file.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

/// The settings of configs/models/<name>.json, without its texts for people; null with a problem when there is no such
/// file.
json model_file(const std::string& name, const fs::path& folder, const std::string& key, Problems& problems) {
  const auto names = known_models(folder);
  if (std::ranges::find(names, name) == names.end()) {
    problems.add(key, fmt::format("model \"{}\"", name),
                 names.empty() ? "a checkpoint's path" : fmt::format("one of: {}", fmt::join(names, ", ")),
                 nearest_name(name, names),
                 fmt::format("`\"path\"` names a checkpoint; {} lists models", folder.string()));
    return nullptr;
  }
  const fs::path path = folder / (name + ".json");
  json file = parse_json(read_file(path), path.string());
  if (!file.is_object()) fail({.place = path.string(), .found = brief(file), .expected = "an object"});
  for (const char* about : {"name", "title", "package", "license"}) file.erase(about);
  return file;
}

std::optional<ModelEntry> read_model(const json& written, const std::string& key, const fs::path& folder,
                                     Problems& problems) {
  json entry = with_name(written, key, problems);
  if (entry.is_null()) return std::nullopt;
  ModelEntry model;
  model.name = take(entry, "name").get<std::string>();
  model.label = take_label(entry, key, problems);
  if (written.is_string() && model.name.find('/') != std::string::npos) {
    if (fs::exists(model.name)) {
      const fs::path path = fs::absolute(find_model(model.name)).lexically_normal();
      model.name = model_name(path);
      entry["path"] = path.string();
    } else if (is_hub_name(model.name)) {
      model.source = fmt::format("{}{}", kHub, model.name);
      model.name = model_name(model.name);
      entry["path"] = "models/" + model.name;
    }
  }
  if (!entry.contains("path")) {
    json file = model_file(model.name, folder, key, problems);
    if (file.is_null()) return std::nullopt;
    if (const json source = take(file, "source"); source.is_string()) model.source = source.get<std::string>();
    file.update(entry);
    entry = std::move(file);
  }
  problems.append(read_parameters(entry, problems.at(key), [&](ParameterVisitor& p) { model.parameters(p); }, {}));
  if (model.path.empty()) problems.add(key + ".path", "nothing", "a checkpoint's file or folder");
  if (!model.devices.empty() && model.device == "cpu") {
    problems.add(key + ".devices", fmt::format("{}", model.devices), "\"device\": \"cuda\" beside it");
  }
  if (std::set(model.devices.begin(), model.devices.end()).size() < model.devices.size())
    problems.add(key + ".devices", fmt::format("{}", model.devices), "each device once");
  if (model.arithmetic == "bf16" && (model.dtype != "bf16" || model.device != "cpu")) {
    problems.add(key + ".arithmetic", fmt::format("bf16 and weights in {} on \"{}\"", model.dtype, model.device),
                 "\"exact\", or weights in bf16 on the processor");
  }
  if (model.label.empty()) model.label = model.name;
  const bool as_stored = model.dtype == kAsStored;
  if (as_stored && model.device != "cpu")
    problems.add(key + ".dtype", "weights as stored on a device",
                 "\"bf16\", \"f16\" or \"f32\", which devices multiply");
  if (model.kv_dtype.empty()) model.kv_dtype = as_stored ? "f32" : model.dtype;
  return model;
}

std::optional<int64_t> take_limit(json& entry, const std::string& key, Problems& problems) {
  const json limit = take(entry, "limit");
  if (limit.is_null()) return std::nullopt;
  if (limit.is_number_integer() && limit.get<double>() >= 1) return limit.get<int64_t>();
  problems.add(key + ".limit", brief(limit), "an integer at least 1");
  return std::nullopt;
}

std::optional<Question> take_question(json& entry, const std::string& key, Problems& problems) {
  const json question = take(entry, "question");
  for (const Question known : kQuestions) {
    if (question.is_string() && question.get_ref<const std::string&>() == name(known)) return known;
  }
  if (!question.is_null()) problems.add(key + ".question", brief(question), "seen, unseen, turns or first_seen");
  return std::nullopt;
}

std::optional<RequestTokens> take_request_tokens(json& entry, const std::string& key, Problems& problems) {
  const json tokens = take(entry, "request_tokens");
  if (tokens.is_null()) return std::nullopt;
  const auto length = [](const json& number) { return number.is_number_integer() && number.get<double>() >= 1; };
  if (tokens.is_array() && tokens.size() == 2 && std::ranges::all_of(tokens, length)) {
    return RequestTokens{.prompt = tokens[0].get<int64_t>(), .answer = tokens[1].get<int64_t>()};
  }
  problems.add(key + ".request_tokens", brief(tokens), "[tokens of the prompt, tokens of the answer], each at least 1");
  return std::nullopt;
}

bool take_baseline(json& entry, const std::string& key, Problems& problems) {
  const json baseline = take(entry, "baseline");
  if (!baseline.is_null() && !baseline.is_boolean()) problems.add(key + ".baseline", brief(baseline), "true or false");
  return baseline.is_boolean() && baseline.get<bool>();
}

std::vector<std::string> take_models(json& entry, const std::string& key, Problems& problems) {
  const json models = take(entry, "models");
  if (models.is_null()) return {};
  const bool labels = models.is_array() && !models.empty() &&
                      std::ranges::all_of(models, [](const json& label) { return label.is_string(); });
  if (labels) return models.get<std::vector<std::string>>();
  problems.add(key + ".models", brief(models), "a list of the labels of models that it runs on");
  return {};
}

/// Reads one entry whose matrix was expanded.
ComponentEntry read_component(json entry, ComponentKind kind, const std::string& key, const Validator& validator,
                              Problems& problems) {
  ComponentEntry component;
  component.name = take(entry, "name").get<std::string>();
  const std::string label = take_label(entry, key, problems);
  const json written = entry;  // what a label may name
  if (kind == ComponentKind::workloads) component.limit = take_limit(entry, key, problems);
  if (kind == ComponentKind::workloads) component.question = take_question(entry, key, problems);
  if (kind == ComponentKind::methods) component.baseline = take_baseline(entry, key, problems);
  if (kind == ComponentKind::methods) component.batch_json = take_batch(entry, key, problems);
  if (kind == ComponentKind::methods) component.models = take_models(entry, key, problems);
  const json told = entry;  // by an automatic label
  if (kind == ComponentKind::workloads) component.request_tokens = take_request_tokens(entry, key, problems);
  if (validator) problems.append(validator(component.name, entry, problems.at(key)));
  std::vector<std::string> label_problems;
  component.label = label.empty() ? automatic_label(component.name, told)
                                  : fill_label(label, written, problems.at(key), label_problems);
  problems.append(label_problems);
  component.settings_json = entry.dump();
  return component;
}

/// Exactly one method is what the others are paired with: the one that says so, or else the first.
void choose_baseline(std::vector<ComponentEntry>& methods, Problems& problems) {
  const auto marked = std::ranges::count_if(methods, &ComponentEntry::baseline);
  if (marked > 1) problems.add("methods", fmt::format("{} baselines", marked), "at most one \"baseline\": true");
  if (marked == 0 && !methods.empty()) methods.front().baseline = true;
  const auto baseline = std::ranges::find_if(methods, &ComponentEntry::baseline);
  if (baseline != methods.end() && !baseline->models.empty())
    problems.add("methods", fmt::format("\"models\" of {}, the baseline", baseline->label),
                 "a baseline for all models");
}

const std::vector<std::string> kDimensions = {"experiment", "model", "workload", "method", "metric"};
const std::vector<std::string> kCellWords = {"mean", "interval", "low", "high", "n", "difference", "published"};

std::vector<std::string> read_dimensions(const json& value, const std::string& key, Problems& problems) {
  std::vector<std::string> dimensions;
  for (const json& item : value.is_array() ? value : json::array({value})) {
    const std::string word = item.is_string() ? item.get<std::string>() : "";
    if (std::ranges::find(kDimensions, word) == kDimensions.end()) {
      problems.add(key, brief(item), fmt::format("one of: {}", fmt::join(kDimensions, ", ")),
                   nearest_name(word, kDimensions));
    }
    dimensions.push_back(word);
  }
  return dimensions;
}

void check_cell_format(const std::string& format, Problems& problems) {
  for (size_t open = format.find('{'); open != std::string::npos; open = format.find('{', open + 1)) {
    const size_t close = format.find('}', open);
    const std::string word = format.substr(open + 1, close == std::string::npos ? close : close - open - 1);
    if (close != std::string::npos && std::ranges::find(kCellWords, word) != kCellWords.end()) continue;
    problems.add("table.cell", fmt::format("{{{}}}", word), fmt::format("one of: {}", fmt::join(kCellWords, ", ")),
                 nearest_name(word, kCellWords));
  }
}

results::Statistic statistic_of(const std::string& name) {
  const auto* const found =
      std::ranges::find_if(results::kStatistics, [&](results::Statistic each) { return results::name(each) == name; });
  return found == results::kStatistics.end() ? results::Statistic::mean
                                             : *found;  // another word is refused beside this
}

/// The labels that a published value is held against.
std::vector<std::string> take_against(json& entry, const std::string& key, Problems& problems) {
  const json against = entry.is_object() ? take(entry, "against") : json();
  if (against.is_null()) return {};
  const json told = entry.value("statistic", json("mean"));
  if (told.is_string() && !results::has_rivals(statistic_of(told.get<std::string>()))) {
    std::vector<std::string_view> with;
    for (const results::Statistic each : results::kStatistics) {
      if (results::has_rivals(each)) with.push_back(results::name(each));
    }
    problems.add(key + ".against", fmt::format("it beside the statistic {}", brief(told)),
                 fmt::format("one of the statistics: {}", fmt::join(with, ", ")));
  }
  const bool labels = against.is_array() && !against.empty() &&
                      std::ranges::all_of(against, [](const json& label) { return label.is_string(); });
  if (labels) return against.get<std::vector<std::string>>();
  problems.add(key + ".against", brief(against), "a list of labels of methods");
  return {};
}

/// One value, or a block of a paper's table: "workloads" as columns and "rows" with "values".
void read_published_entry(const json& entry, const std::string& key, std::vector<results::PublishedValue>& values,
                          Problems& problems) {
  results::PublishedValue common;
  const bool block = entry.is_object() && entry.contains("rows");
  json head = entry;
  common.against = take_against(head, key, problems);
  const json workloads = block ? take(head, "workloads") : json();
  const json rows = block ? take(head, "rows") : json();
  std::string statistic = "mean";
  const auto about = [&](ParameterVisitor& p) {
    p("metric", common.metric).required().doc("as in the database, or score: each workload's own");
    p("unit", common.unit).doc("of the value");
    p("statistic", statistic).one_of(statistic_names()).doc("what of the metric's values is printed");
    p("bound", common.bound).one_of({results::kBounds.begin(), results::kBounds.end()}).doc("sign before the value");
    p("upper", common.upper).doc("end of a printed range, which begins at the value");
    p("source", common.source).required().doc("paper, table, page");
    p("note", common.note).doc("what makes it not comparable, if anything");
  };
  const auto place_of = [](ParameterVisitor& p, results::PublishedValue& value) {
    p("model", value.model).required().doc("model of the paper");
    p("method", value.method).required().doc("label of a method");
  };
  if (!block) {
    problems.append(read_parameters(head, problems.at(key), [&](ParameterVisitor& p) {
      about(p);
      place_of(p, common);
      p("workload", common.workload).required().doc("label of a workload, or all");
      p("value", common.value).required().doc("as printed");
    }));
    common.statistic = statistic_of(statistic);
    values.push_back(common);
    return;
  }
  problems.append(read_parameters(head, problems.at(key), about, {}));
  common.statistic = statistic_of(statistic);
  if (!is_list(workloads, key + ".workloads", true, problems) || !is_list(rows, key + ".rows", true, problems)) return;
  for (size_t r = 0; r < rows.size(); ++r) {
    const std::string at = fmt::format("{}.rows[{}]", key, r);
    results::PublishedValue value = common;
    json row = rows[r];
    const json numbers = row.is_object() ? take(row, "values") : json();
    problems.append(read_parameters(row, problems.at(at), [&](ParameterVisitor& p) { place_of(p, value); }, {}));
    if (!numbers.is_array() || numbers.size() != workloads.size()) {
      problems.add(at + ".values", brief(numbers), fmt::format("a list of {} numbers", workloads.size()));
      continue;
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i].is_null()) continue;  // not printed
      if (!numbers[i].is_number() || !workloads[i].is_string()) {
        problems.add(fmt::format("{}.values[{}]", at, i), brief(numbers[i]), "a number, or null where none is printed");
        continue;
      }
      value.workload = workloads[i].get<std::string>();
      value.value = numbers[i].get<double>();
      values.push_back(value);
    }
  }
}

}  // namespace

void Problems::add(const std::string& key, const std::string& found, const std::string& expected,
                   const std::string& nearest, const std::string& action) {
  append({describe({.place = at(key), .found = found, .expected = expected, .nearest = nearest, .action = action})});
}

void Problems::append(const std::vector<std::string>& messages) {
  for (const std::string& message : messages) {
    if (std::ranges::find(messages_, message) == messages_.end()) messages_.push_back(message);
  }
}

void Problems::throw_if_any() const {
  if (!messages_.empty()) throw UserError(fmt::format("{}", fmt::join(messages_, "\n")));
}

std::vector<ModelEntry> read_models(const json& list, const fs::path& models_folder, Problems& problems) {
  std::vector<ModelEntry> models;
  if (!is_list(list, "models", true, problems)) return models;
  for (size_t i = 0; i < list.size(); ++i) {
    auto model = read_model(list[i], fmt::format("models[{}]", i), models_folder, problems);
    if (model) models.push_back(std::move(*model));
  }
  check_labels(models, "models", problems);
  return models;
}

std::vector<ComponentEntry> read_components(const json& list, ComponentKind kind, const Validator& validator,
                                            Problems& problems) {
  std::vector<ComponentEntry> components;
  const std::string list_key = kind_name(kind);
  if (!is_list(list, list_key, kind != ComponentKind::metrics, problems)) return components;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string key = fmt::format("{}[{}]", list_key, i);
    const json entry = with_name(list[i], key, problems);
    if (entry.is_null()) continue;
    check_matrix_label(entry, key, problems);
    std::vector<std::string> matrix_problems;
    for (json& one : expand_matrix(entry, problems.at(key), matrix_problems)) {
      components.push_back(read_component(std::move(one), kind, key, validator, problems));
    }
    problems.append(matrix_problems);
  }
  if (kind == ComponentKind::methods) choose_baseline(components, problems);
  check_labels(components, list_key, problems);
  return components;
}

json request_tokens_json(const RequestTokens& tokens) { return {tokens.prompt, tokens.answer}; }

ContextSettings read_contexts(const json& value, const Validators& validators, Problems& problems) {
  ContextSettings contexts;
  json group = value;
  const json forms = group.is_object() ? take(group, "forms") : json();
  if (!forms.is_null()) contexts.forms = read_components(forms, ComponentKind::forms, validators.methods, problems);
  problems.append(
      read_parameters(group, problems.at("contexts"), [&](ParameterVisitor& p) { contexts.parameters(p); }, {}));
  if (validators.metrics) {
    problems.append(validators.metrics(contexts.quality, json::object(), problems.at("contexts.quality")));
  }
  return contexts;
}

std::string contexts_json(const ContextSettings& contexts) {
  ContextSettings copy = contexts;
  json whole = parameter_values([&](ParameterVisitor& p) { copy.parameters(p); });
  for (const char* room : {"device_share", "device_bytes"}) {  // what was not there yet decides nothing where it is not
    if (!contexts.on_device()) whole.erase(room);
  }
  whole["forms"] = json::array();
  for (const ComponentEntry& form : contexts.forms) {
    json entry = json::parse(form.settings_json);
    entry["name"] = form.name;
    whole["forms"].push_back(std::move(entry));
  }
  return whole.dump();
}

TableShape read_table(const json& value, Problems& problems) {
  TableShape table;
  const std::vector<std::string> keys = {"rows", "columns", "cell", "average"};
  if (!value.is_object()) {
    problems.add("table", brief(value), "an object");
    return table;
  }
  for (const auto& [key, item] : value.items()) {
    const std::string at = "table." + key;
    if (key == "rows") {
      table.rows = read_dimensions(item, at, problems);
    } else if (key == "columns") {
      table.columns = read_dimensions(item, at, problems);
    } else if (key == "cell" && item.is_string()) {
      table.cell = item.get<std::string>();
      check_cell_format(table.cell, problems);
    } else if (key == "average" && item.is_boolean()) {
      table.average = item.get<bool>();
    } else if (key == "cell" || key == "average") {
      problems.add(at, brief(item), key == "cell" ? "a string" : "true or false");
    } else {
      problems.add(at, "an unknown key", fmt::format("one of: {}", fmt::join(keys, ", ")), nearest_name(key, keys));
    }
  }
  return table;
}

std::string table_json(const TableShape& table) {
  return json{{"rows", table.rows}, {"columns", table.columns}, {"cell", table.cell}, {"average", table.average}}
      .dump();
}

std::vector<std::string> statistic_names() {
  std::vector<std::string> names;
  for (const results::Statistic each : results::kStatistics) names.emplace_back(results::name(each));
  return names;
}

std::vector<results::PublishedValue> read_published(const json& list, Problems& problems) {
  std::vector<results::PublishedValue> values;
  if (!is_list(list, "published", false, problems)) return values;
  for (size_t i = 0; i < list.size(); ++i) {
    read_published_entry(list[i], fmt::format("published[{}]", i), values, problems);
  }
  std::set<std::string> seen;
  for (const results::PublishedValue& v : values) {
    const std::string cell = fmt::format("{}, {}, {}, {}, {}", v.model, v.workload, v.method, v.metric, v.source);
    if (!seen.insert(cell).second) problems.add("published", fmt::format("a value for {} twice", cell), "one");
    if (v.upper && *v.upper <= v.value) {
      problems.add("published", fmt::format("a range from {} to {} for {}", v.value, *v.upper, cell),
                   "an upper end above the value");
    }
  }
  return values;
}

std::vector<std::string> unmatched_published(const ExperimentConfig& config, const std::string& place) {
  std::vector<std::string> warnings;
  const auto labels_of = [](const std::vector<ComponentEntry>& entries) {
    std::vector<std::string> labels;
    for (const ComponentEntry& entry : entries) labels.push_back(entry.label);
    return labels;
  };
  std::set<std::pair<std::string, std::string>> seen = {{"method", std::string(results::kAllMethods)},
                                                        {"workload", std::string(results::kAllWorkloads)}};
  const auto check = [&](const char* what, const std::vector<std::string>& known, const std::string& word) {
    if (!seen.emplace(what, word).second || !results::labels_fitting(known, word).empty()) return;
    warnings.push_back(describe({.place = place + ": published",
                                 .found = fmt::format("{} \"{}\", which this experiment does not have", what, word),
                                 .nearest = nearest_name(word, known)}));
  };
  const std::vector<std::string> methods = labels_of(config.methods), workloads = labels_of(config.workloads);
  for (const results::PublishedValue& value : config.published) {
    check("method", methods, value.method);
    check("workload", workloads, value.workload);
    for (const std::string& other : value.against) check("method", methods, other);
  }
  return warnings;
}

}  // namespace kvarena::experiment
