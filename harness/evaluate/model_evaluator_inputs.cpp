// Files that results of a cell depend on, and the protocol card.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "datasets/data_files.h"
#include "harness/core/data_origin.h"
#include "harness/core/files.h"
#include "harness/evaluate/method_files.h"
#include "harness/evaluate/model_evaluator.h"
#include "harness/evaluate/server_entry.h"
#include "harness/experiment/config_parts.h"
#include "harness/method/plugins.h"
#include "metrics/registry.h"

namespace kvarena::evaluate {
namespace {

using experiment::ComponentEntry;
using experiment::ModelEntry;
using nlohmann::json;

const char* truncation_name(datasets::TruncationRule rule) {
  switch (rule) {
    case datasets::TruncationRule::none: return "none";
    case datasets::TruncationRule::middle_halves: return "middle, two decodes";
    case datasets::TruncationRule::middle_joined: return "middle, one decode";
    case datasets::TruncationRule::context_end: return "end of the context";
  }
  return "";
}

void collect_words(const json& settings, std::set<std::string>& words) {
  for (const json& value : settings) {
    if (value.is_structured()) collect_words(value, words);
    if (value.is_string()) words.insert(value);
  }
}

/// Hashes of the plugins that define the method or a part of it; "" where the program does.
std::string plugins_of(const ComponentEntry& method, const experiment::ExperimentConfig& config) {
  std::set<std::string> words;
  collect_words(spec_of(method), words);
  if (config.contexts) collect_words(json::parse(experiment::contexts_json(*config.contexts)), words);
  std::vector<std::string> hashes;
  for (const LoadedPlugin& plugin : loaded_plugins()) {
    const auto named = [&](const std::string& name) { return words.contains(name); };
    if (std::ranges::any_of(plugin.methods, named)) hashes.push_back(plugin.sha256);
  }
  std::ranges::sort(hashes);
  return fmt::format("{}", fmt::join(hashes, " "));
}

}  // namespace

std::string ModelEvaluator::model_hash(const ModelEntry& model) { return hashes_.of_all(loaded(model).opened().files); }

const std::vector<MethodFile>& ModelEvaluator::files_of(const ModelEntry& model, const ComponentEntry& method) {
  const auto [slot, fresh] = method_files_.try_emplace(model.label + "\n" + method.label);
  const bool reads_files = method.name != kServerEntry && !model.behind_endpoint();
  if (fresh && reads_files) slot->second = method_files(spec_of(method), file_sources(model, paths_.home));
  return slot->second;
}

std::vector<results::RunInput> ModelEvaluator::method_inputs(const ModelEntry& model, const ComponentEntry& method) {
  const std::string place = model.label + "\n" + method.label;
  if (const auto known = method_inputs_.find(place); known != method_inputs_.end()) return known->second;
  std::vector<MethodFile> files = files_of(model, method);
  if (config_.contexts) {
    const json contexts = json::parse(experiment::contexts_json(*config_.contexts));
    for (MethodFile& file : method_files(contexts, file_sources(model, paths_.home))) {
      files.push_back({.setting = "contexts." + file.setting, .path = std::move(file.path)});
    }
  }
  std::vector<results::RunInput> inputs;
  for (const MethodFile& file : files) {
    if (file.path.empty()) continue;
    inputs.push_back({.kind = "artifact",
                      .name = fmt::format("{}: {}", method.label, file.setting),
                      .sha256 = hashes_.of(file.path),
                      .detail_json = json{{"path", file.path.string()}}.dump(),
                      .model = model.label});
  }
  return method_inputs_[place] = std::move(inputs);
}

std::string ModelEvaluator::missing_weights(const ModelEntry& model, const ComponentEntry& method) {
  std::vector<std::string> missing;
  for (const MethodFile& file : files_of(model, method)) {
    if (file.path.empty()) missing.push_back(fmt::format("{}: {}", file.missing, file.get));
  }
  return fmt::format("{}", fmt::join(missing, "; "));
}

std::vector<results::RunInput> ModelEvaluator::metric_inputs(const ModelEntry& model, const ComponentEntry& workload) {
  std::vector<std::string> ids = score_metrics(cursor(model, workload).info(), config_);
  if (config_.contexts) ids.push_back(config_.contexts->quality);
  std::vector<results::RunInput> inputs;
  for (const std::string& id : ids) {
    const auto data = metrics::find_metric(id).data;
    if (data == nullptr) continue;
    for (const std::filesystem::path& file : data()) {
      if (!std::filesystem::exists(file)) continue;  // the first score says so
      inputs.push_back({.kind = "artifact",
                        .name = fmt::format("{}: {}", id, file.filename().string()),
                        .sha256 = hashes_.of(file),
                        .detail_json = json{{"path", file.string()}}.dump(),
                        .model = model.label});
    }
  }
  return inputs;
}

results::RunInput ModelEvaluator::data_input(const ModelEntry& model, const ComponentEntry& workload) {
  const auto [slot, fresh] = data_inputs_.try_emplace(model.label + "\n" + workload.label);
  if (fresh) {
    SampleCursor& samples = cursor(model, workload);
    const datasets::Sample* first = samples.first();
    const auto file = datasets::find_data_file(samples.info(), paths_.data_dir);
    const bool official = file && first != nullptr && first->origin == file->path.filename().string();
    const std::string origin = first == nullptr ? "" : first->origin;
    json detail = {{"of", official ? "the file" : "the first sample"}, {"origin", origin}};
    if (origin == kProjectMade) {
      const std::string& title = samples.info().title;
      detail["instead_of"] = title.substr(0, title.find(':'));
    }
    slot->second = {.kind = "data",
                    .name = workload.label,
                    .sha256 = official           ? hashes_.of(file->path)
                              : first == nullptr ? ""
                                                 : first->data_sha256,
                    .detail_json = detail.dump(),
                    .model = model.label};
  }
  return slot->second;
}

std::string ModelEvaluator::protocol_card(const ModelEntry& model, const ComponentEntry& workload,
                                          const ComponentEntry& method, results::CellKind kind) {
  require_server_entry(model, method);
  LoadedModel& opened = loaded(model);
  const datasets::WorkloadInfo& info = cursor(model, workload).info();
  const bool templated = info.chat_template && model.chat_template != "none";
  if (templated) {  // what cannot be rendered is refused before anything runs
    (void)opened.chat_template().render(std::array{ChatMessage{.role = "user", .content = "?"}}, true);
  }
  std::string versions;  // the one that tables show comes first
  const auto add_version = [&](const std::string& id) {
    versions += fmt::format("{}{} v{}", versions.empty() ? "" : ", ", id, metrics::find_metric(id).version);
  };
  std::ranges::for_each(score_metrics(info, config_), add_version);
  for (const char* id :
       {metrics::kAttentionHitRate.name, metrics::kTokenOverlap.name, metrics::kPromptAttentionKept.name}) {
    if (lists_metric(config_, id)) add_version(id);
  }
  std::string metric_files;
  for (const results::RunInput& input : metric_inputs(model, workload)) {
    metric_files += fmt::format("{} {}\n", input.name, input.sha256);
  }
  const experiment::EngineSettings engine = engine_of(config_, workload, kind);
  const SamplingSettings sampling = sampling_of(engine, info.generation);
  const std::string cut = truncation_name(info.truncation);
  const auto limit = config_.engine.max_prompt_tokens;
  json card{{"template", templated ? opened.chat_template().name() : "none"},
            {"template_sha256", templated ? opened.chat_template().hash() : ""},
            {"stop_tokens", fmt::format("{}", fmt::join(opened.config().eos, " "))},
            {"max_new_tokens", engine.max_new_tokens.value_or(info.generation.max_new_tokens)},
            {"truncation", limit ? fmt::format("{}, above {} tokens", cut, *limit) : cut},
            {"window", opened.config().max_position},
            {"question", name(question_of(model, workload))},
            {"dtype", model.dtype},
            {"kv_dtype", model.kv_dtype.empty() ? model.dtype : model.kv_dtype},
            {"temperature", sampling.temperature},
            {"kl_temperature", kl_temperature(sampling)},
            {"seed", config_.engine.seed},
            {"metrics", versions},
            {"model_sha256", model_hash(model)},
            {"data_sha256", data_input(model, workload).sha256},
            {"kind", std::string(results::name(kind))}};
  if (!sampling.greedy()) card["top_p"] = sampling.top_p;
  if (engine.draws > 1 && kind != results::CellKind::timing) card["draws"] = engine.draws;
  if (model.arithmetic != "exact") card["arithmetic"] = model.arithmetic;
  if (opened.elsewhere() != nullptr) card["engine"] = opened.elsewhere()->version();
  if (model.behind_endpoint()) {
    const ServerSettings server = server_of(model, method);
    const LoadedModel::ServerFacts& facts = opened.server_facts(method);
    card["engine"] = facts.version;
    card["server_template"] = facts.chat_template;
    card["prompts"] = prompt_form(model.prompts, server.engine);
    card["dtype"] = card["kv_dtype"] = "the server's";
    card["kl_temperature"] = 1;
  }
  if (const std::string hashes = plugins_of(method, config_); !hashes.empty() && opened.elsewhere() == nullptr) {
    card["method_sha256"] = hashes;
  }
  if (!metric_files.empty()) card["metric_data_sha256"] = sha256(metric_files);
  return card.dump();
}

std::vector<results::RunInput> ModelEvaluator::inputs(const ModelEntry& model) {
  std::vector<results::RunInput> inputs;
  for (const auto& file : loaded(model).opened().files) {
    json detail = {{"bytes", std::filesystem::file_size(file)}};
    if (model.device != "cpu") detail["device"] = model.device;
    if (!model.devices.empty()) detail["devices"] = model.devices;
    inputs.push_back({.kind = "model",
                      .name = file.filename().string(),
                      .sha256 = hashes_.of(file),
                      .detail_json = detail.dump(),
                      .model = model.label});
  }
  for (const LoadedPlugin& plugin : loaded_plugins()) {
    inputs.push_back({.kind = "plugin",
                      .name = fmt::format("{} {}", plugin.name, plugin.version),
                      .sha256 = plugin.sha256,
                      .detail_json = json{{"path", plugin.path.string()}, {"methods", plugin.methods}}.dump()});
  }
  for (const auto& [place, input] : data_inputs_) {
    if (place.starts_with(model.label + "\n")) inputs.push_back(input);
  }
  const auto add = [&](std::vector<results::RunInput> more) { std::ranges::move(more, std::back_inserter(inputs)); };
  for (const ComponentEntry& method : config_.methods) add(method_inputs(model, method));
  for (const ComponentEntry& workload : config_.workloads) add(metric_inputs(model, workload));
  return inputs;
}

}  // namespace kvarena::evaluate
