#include "harness/evaluate/model_evaluator.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "datasets/data_files.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/evaluate/local_embedder.h"
#include "harness/evaluate/perplexity.h"
#include "harness/evaluate/remote_prefix.h"
#include "harness/evaluate/serving.h"
#include "harness/evaluate/stored_contexts.h"
#include "harness/evaluate/stored_values.h"
#include "harness/evaluate/timing.h"
#include "harness/method/plugins.h"
#include "harness/method/registry.h"
#include "harness/model/ranks/channel.h"
#include "harness/model/ranks/split_model.h"
#include "harness/storage/hierarchy.h"
#include "metrics/registry.h"

namespace kvarena::evaluate {
namespace {

using experiment::ComponentEntry;
using experiment::ModelEntry;
using nlohmann::json;

/// {"name": ..., settings}: how registries take a component.
json spec_of(const std::string& name, const std::string& settings_json) {
  json spec = json::parse(settings_json);
  spec["name"] = name;
  return spec;
}

EvaluatedMethod build_method(const ComponentEntry& entry) {
  return {.method = make_method(spec_of(entry.name, entry.settings_json), entry.label),
          .reference = find_method(entry.name)->family == Family::reference};
}

constexpr int64_t kAnyLength = std::numeric_limits<int64_t>::max();

/// Truncation leaves room in the window for the answer and for what the chat template adds.
int64_t prompt_room(int64_t window, int64_t answer, const ComponentEntry& workload) {
  constexpr int64_t kTemplateTokens = 64;
  const int64_t room = window - answer - kTemplateTokens;
  if (room > 0) return room;
  fail({.place = fmt::format("workload {}", workload.label),
        .found = fmt::format("answers of up to {} tokens in a window of {}", answer, window),
        .expected = "room for a prompt before the answer",
        .action = "give a smaller engine.max_new_tokens, or a model with a longer window"});
}

/// What a method throws costs its own cell, not those of the others.
template <typename Make>
experiment::SampleOutcome outcome_of(const Make& make) {
  try {
    return make();
  } catch (const std::exception& error) {
    return {.failure = error.what()};
  }
}

const char* truncation_name(datasets::TruncationRule rule) {
  switch (rule) {
    case datasets::TruncationRule::none: return "none";
    case datasets::TruncationRule::middle_halves: return "middle, two decodes";
    case datasets::TruncationRule::middle_joined: return "middle, one decode";
  }
  return "";
}

/// The memory behind the device as the config describes it.
std::shared_ptr<const storage::Hierarchy> machine_of(const experiment::EngineSettings& engine) {
  storage::TierSettings host{.tier = Tier::host, .link = storage::link_named(engine.host_link, "engine.host_link")};
  if (engine.host_bytes) host.capacity_bytes = *engine.host_bytes;
  if (engine.host_link_bytes_per_s) host.link = storage::at_rate(host.link, *engine.host_link_bytes_per_s);
  std::vector<storage::TierSettings> all{std::move(host)};
  if (!engine.disk_folder.empty()) {
    all.push_back({.tier = Tier::disk, .link = storage::link_named("real", "disk tier"), .folder = engine.disk_folder});
  }
  return std::make_shared<const storage::Hierarchy>(all);
}

}  // namespace

ModelEvaluator::ModelEvaluator(const experiment::ExperimentConfig& config, Paths places)
    : engine_(config.engine),
      threads_(omp_get_max_threads()),
      timing_(config.timing),
      remote_prefix_(config.remote_prefix),
      serving_(config.serving),
      contexts_(config.contexts),
      machine_(machine_of(config.engine)),
      places_(std::move(places)),
      hashes_(places_.home / "hashes.json") {
  use_local_embedder(places_.home);
  for (const ComponentEntry& metric : config.metrics) extra_metrics_.push_back(metric.name);
}

LoadedModel& ModelEvaluator::loaded(const ModelEntry& model) {
  auto& slot = models_[model.label];
  if (!slot) slot = std::make_unique<LoadedModel>(model, places_.home, machine_);
  return *slot;
}

SampleCursor& ModelEvaluator::cursor(const ModelEntry& model, const ComponentEntry& workload) {
  auto& slot = cursors_[model.label + "\n" + workload.label];
  if (!slot) {
    LoadedModel& opened = loaded(model);
    auto made = datasets::make_workload(workload.name, workload.settings_json, workload.label);
    const int64_t answer = engine_.max_new_tokens.value_or(made->info().generation.max_new_tokens);
    slot = std::make_unique<SampleCursor>(
        std::move(made),
        datasets::OpenSettings{.data_dir = places_.data_dir,
                     .tokens = &opened.tokens(),
                     .max_prompt_tokens = std::min(prompt_room(opened.config().max_position, answer, workload),
                                                   engine_.max_prompt_tokens.value_or(kAnyLength))});
  }
  return *slot;
}

std::string ModelEvaluator::model_hash(const ModelEntry& model) {
  std::string all;
  for (const auto& file : loaded(model).opened().checkpoint->files()) {
    all += fmt::format("{} {}\n", file.filename().string(), hashes_.of(file));
  }
  return sha256(all);
}

const results::RunInput& ModelEvaluator::data_input(const ModelEntry& model, const ComponentEntry& workload) {
  const auto [slot, fresh] = data_inputs_.try_emplace(model.label + "\n" + workload.label);
  if (fresh) {
    SampleCursor& samples = cursor(model, workload);
    const datasets::Sample* first = samples.at(0);
    const auto file = datasets::find_data_file(samples.info(), places_.data_dir);
    const bool official = file && first != nullptr && first->origin == file->path.filename().string();
    slot->second = {.kind = "data",
                    .name = workload.label,
                    .sha256 = official           ? hashes_.of(file->path)
                              : first == nullptr ? ""
                                                 : first->data_sha256,
                    .detail_json = json{{"of", official ? "the file" : "the first sample"},
                                        {"origin", first == nullptr ? "" : first->origin}}
                                       .dump(),
                    .model = model.label};
  }
  return slot->second;
}

/// Of the workload's own metrics and the config's those that score a prediction; distributions are compared anyway.
std::vector<std::string> ModelEvaluator::score_metrics(const datasets::WorkloadInfo& workload) const {
  std::vector<std::string> ids;
  const auto add = [&](const std::string& id) {
    if (metrics::find_metric(id).score != nullptr && std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  };
  std::ranges::for_each(workload.metrics, add);
  std::ranges::for_each(extra_metrics_, add);
  return ids;
}

bool ModelEvaluator::asks_for(const std::string& metric) const {
  return std::ranges::find(extra_metrics_, metric) != extra_metrics_.end();
}

std::vector<std::string> ModelEvaluator::sample_ids(const ModelEntry& model, const ComponentEntry& workload) {
  SampleCursor& samples = cursor(model, workload);
  std::vector<std::string> ids;
  for (int64_t i = 0; !workload.limit || i < *workload.limit; ++i) {
    const datasets::Sample* sample = samples.at(i);
    if (sample == nullptr) break;
    ids.push_back(sample->id);
  }
  return ids;
}

std::string ModelEvaluator::protocol_card(const ModelEntry& model, const ComponentEntry& workload,
                                      const ComponentEntry& /*method*/, results::CellKind kind) {
  LoadedModel& opened = loaded(model);
  const datasets::WorkloadInfo& info = cursor(model, workload).info();
  const bool templated = info.chat_template && model.chat_template != "none";
  std::string versions;  // the one that tables show comes first
  for (const std::string& id : score_metrics(info)) {
    versions += fmt::format("{}{} v{}", versions.empty() ? "" : ", ", id, metrics::find_metric(id).version);
  }
  for (const char* id : {metrics::kAttentionHitRate.name, metrics::kTokenOverlap.name}) {
    if (asks_for(id)) versions += fmt::format(", {} v{}", id, metrics::find_metric(id).version);
  }
  const std::string cut = truncation_name(info.truncation);
  const auto limit = engine_.max_prompt_tokens;
  return json{{"template", templated ? opened.chat_template().name() : "none"},
              {"template_sha256", templated ? opened.chat_template().hash() : ""},
              {"stop_tokens", fmt::format("{}", fmt::join(opened.config().eos, " "))},
              {"max_new_tokens", engine_.max_new_tokens.value_or(info.generation.max_new_tokens)},
              {"truncation", limit ? fmt::format("{}, above {} tokens", cut, *limit) : cut},
              {"window", opened.config().max_position},
              {"question", "inside the compressed prompt"},
              {"dtype", model.dtype},
              {"kv_dtype", model.kv_dtype.empty() ? model.dtype : model.kv_dtype},
              {"temperature", engine_.temperature},
              {"seed", engine_.seed},
              {"metrics", versions},
              {"model_sha256", model_hash(model)},
              {"data_sha256", data_input(model, workload).sha256},
              {"kind", std::string(results::name(kind))}}
      .dump();
}

std::vector<results::RunInput> ModelEvaluator::inputs(const ModelEntry& model) {
  std::vector<results::RunInput> inputs;
  for (const auto& file : loaded(model).opened().checkpoint->files()) {
    json detail = {{"bytes", std::filesystem::file_size(file)}};
    if (model.tensor_parallel > 1) detail["ranks"] = model.tensor_parallel;
    if (model.device != "cpu") detail["device"] = model.device;
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
  return inputs;
}

void ModelEvaluator::begin_model(const ModelEntry& model, const experiment::EngineSettings& engine) {
  const int64_t ranks_here = model.ranks_at.empty() ? model.tensor_parallel : 1;
  omp_set_num_threads(engine.threads > 0 ? static_cast<int>(engine.threads)
                                         : threads_each(threads_, ranks_here));
  lost_.clear();
  try {
    (void)loaded(model).transformer();
  } catch (const RankLost& error) {
    lost_ = error.what();
    throw;
  }
}

void ModelEvaluator::end_model(const ModelEntry& model) {
  std::erase_if(cursors_, [&](const auto& item) { return item.first.starts_with(model.label + "\n"); });
  models_.erase(model.label);
}

std::string ModelEvaluator::lost() {
  if (!lost_.empty()) return lost_;
  for (const auto& [label, model] : models_) {
    if (std::string reason = model->lost(); !reason.empty()) return reason;
  }
  return {};
}

std::vector<results::MetricDefinition> ModelEvaluator::metric_definitions() const {
  std::vector<results::MetricDefinition> definitions;
  const auto define = [&](const std::string& name, const auto& metric) {
    const bool higher = metric.better == metrics::Better::higher;
    definitions.push_back({.metric = name,
                           .title = metric.title,
                           .unit = metric.unit,
                           .better = higher ? results::Direction::higher : results::Direction::lower,
                           .table_scale = metric.table_scale});
  };
  for (const metrics::MetricEntry* metric : metrics::all_metrics()) {
    define(metric->id, *metric);
    for (const metrics::StoredMetric& value : metric->stored) define(value.name, value);
  }
  return definitions;
}

/// The point's own samples: the next so many of the workload after those of the points before.
std::vector<experiment::SampleOutcome> ModelEvaluator::evaluate_point(const experiment::EvalTask& task,
                                                         std::span<const EvaluatedMethod> methods) {
  LoadedModel& opened = loaded(task.model);
  SampleCursor& samples = cursor(task.model, task.workload);
  experiment::EngineSettings engine = engine_;
  if (serving_->max_new_tokens) engine.max_new_tokens = serving_->max_new_tokens;
  const json identity = json::parse(task.cells.front()->record.engine_json);
  const auto count = identity.at("requests").get<int64_t>();
  std::vector<datasets::Sample> content;
  for (int64_t i = task.sample_index * count; i < (task.sample_index + 1) * count; ++i)
    content.push_back(*samples.at(i));
  if (contexts_) return evaluate_contexts(task, content, engine, methods);
  std::vector<Request> requests;
  for (const datasets::Sample& sample : content) {
    requests.push_back(opened.request(sample, engine, score_metrics(samples.info())));
    requests.back().facts = opened.facts();
  }
  return evaluate_serving(opened.transformer(),
                       {.settings = *serving_,
                        .requests = requests,
                        .point = static_cast<size_t>(task.sample_index),
                        .seed = static_cast<uint64_t>(engine.seed),
                        .machine = serving_machine(serving_->hardware, places_.hardware)},
                       methods);
}

std::vector<experiment::SampleOutcome> ModelEvaluator::evaluate_contexts(const experiment::EvalTask& task,
                                                            std::span<const datasets::Sample> content,
                                                            const experiment::EngineSettings& engine,
                                                            std::span<const EvaluatedMethod> methods) {
  LoadedModel& opened = loaded(task.model);
  std::map<std::string, datasets::ContextQuestions> questions;
  if (!contexts_->questions.empty()) questions = datasets::read_questions(contexts_->questions);
  std::vector<ContextWithQueries> asked;
  for (const datasets::Sample& sample : content) {
    const auto given = questions.find(sample.id);
    if (given == questions.end() && !contexts_->questions.empty()) {
      fail({.place = contexts_->questions,
            .found = fmt::format("no question about \"{}\"", sample.id),
            .expected = "at least one for every sample"});
    }
    asked.push_back(ask_about(opened, sample, engine, *contexts_, given == questions.end() ? nullptr : &given->second));
  }
  // Answers are compared with full KV's, whatever the metric.
  const auto similarity = [&metric = metrics::find_metric(contexts_->quality)](
                              const Request& request, std::span<const int32_t> answer, std::span<const int32_t> full) {
    const std::vector<std::string> reference = {answer_text(request, full)};
    return metrics::score_sample(metric, {answer_text(request, answer), reference, json::parse(request.sample->extras)}).score;
  };
  const std::filesystem::path folder =
      engine.disk_folder.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(engine.disk_folder);
  return evaluate_stored_contexts(opened.transformer(),
                               {.serving = *serving_,
                                .contexts = *contexts_,
                                .asked = asked,
                                .facts = opened.facts(),
                                .folder = folder,
                                .similarity = similarity,
                                .point = static_cast<size_t>(task.sample_index),
                                .seed = static_cast<uint64_t>(engine.seed)},
                               methods);
}

std::vector<experiment::SampleOutcome> ModelEvaluator::evaluate(const experiment::EvalTask& task) {
  LoadedModel& opened = loaded(task.model);
  SampleCursor& samples = cursor(task.model, task.workload);
  std::vector<EvaluatedMethod> methods;
  for (const experiment::PlannedCell* cell : task.cells) methods.push_back(build_method(*cell->method));
  if (task.kind == results::CellKind::serving) return evaluate_point(task, methods);

  const datasets::Sample* sample = samples.at(task.sample_index);
  KVARENA_ASSERT(sample != nullptr && sample->id == task.sample_id,
                 fmt::format("sample {} of {} is not {}", task.sample_index, task.workload.label, task.sample_id));

  experiment::EngineSettings engine = engine_;
  if (task.kind == results::CellKind::timing) {
    if (timing_->max_new_tokens) engine.max_new_tokens = timing_->max_new_tokens;
    Request request = opened.request(*sample, engine, {});
    request.facts = opened.facts();
    std::vector<experiment::SampleOutcome> outcomes;
    for (const EvaluatedMethod& method : methods) {
      outcomes.push_back(outcome_of([&] {
        if (!remote_prefix_) return evaluate_timing(opened.transformer(), request, method, *timing_);
        return evaluate_remote_prefix(
            opened.transformer(), request, method,
            {.timing = *timing_, .links = *remote_prefix_, .seed = static_cast<uint64_t>(engine.seed)});
      }));
    }
    return outcomes;
  }
  Request request = opened.request(*sample, engine, score_metrics(samples.info()));
  request.facts = opened.facts();
  request.selections = asks_for(metrics::kAttentionHitRate.name);
  request.token_overlaps = asks_for(metrics::kTokenOverlap.name);
  if (is_scored_text(*sample)) {
    return evaluate_perplexity(opened.transformer(), request, methods,
                            task.kind == results::CellKind::noise_floor ? kOtherChunk : kPrefillChunk);
  }
  if (task.kind == results::CellKind::noise_floor) {
    std::vector<experiment::SampleOutcome> outcomes;
    for (const EvaluatedMethod& method : methods) {
      outcomes.push_back(outcome_of([&] { return evaluate_noise_floor(opened.transformer(), request, method); }));
    }
    return outcomes;
  }
  return evaluate_quality(opened.transformer(), request, methods);
}

/// Of a sweep, the largest load that was served: attainment at its goal there and at every smaller one (DistServe's
/// goodput of a server). Other metrics are means over samples, which the database's views give.
std::vector<results::MetricValue> ModelEvaluator::cell_values(const experiment::PlannedCell& cell,
                                                        const results::ResultsReader& results) {
  if (cell.record.kind != results::CellKind::serving || serving_->arrivals == "clients") return {};
  std::vector<results::MetricValue> values;
  for (const results::Clock clock : {results::Clock::measured, results::Clock::modelled}) {
    const auto rates = results.values(cell.record.cell_id, metrics::kOfferedRequestsPerS.name, clock);
    const auto attained = results.values(cell.record.cell_id, metrics::kAttainment.name, clock);
    if (rates.empty() || rates.size() != attained.size()) continue;
    std::map<double, double> sweep;
    for (size_t i = 0; i < rates.size(); ++i) sweep[rates[i].value] = attained[i].value;
    double served = 0;
    for (const auto& [rate, attainment] : sweep) {
      if (attainment < serving_->attainment) break;
      served = rate;
    }
    values.push_back(stored_value(metrics::kGoodputRatePerS, served, {.clock = clock}));
  }
  return values;
}

experiment::Validators registry_validators() {
  const auto guarded = [](const auto& check) {
    std::vector<std::string> problems;
    try {
      check();
    } catch (const UserError& error) {
      problems.emplace_back(error.what());
    }
    return problems;
  };
  return {.methods = [](const std::string& name, const json& settings,
                        const std::string& place) { return check_method(spec_of(name, settings.dump()), place); },
          .workloads =
              [guarded](const std::string& name, const json& settings, const std::string& place) {
                return guarded([&] { (void)datasets::make_workload(name, settings.dump(), place); });
              },
          .metrics =
              [guarded](const std::string& name, const json& /*settings*/, const std::string& place) {
                return guarded([&] {
                  try {
                    (void)metrics::find_metric(name);
                  } catch (const UserError& error) {
                    throw UserError(fmt::format("{}: {}", place, error.what()));
                  }
                });
              }};
}

}  // namespace kvarena::evaluate
