#include "harness/evaluate/model_evaluator.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/device/open_device.h"
#include "harness/engine/foreign/transformers_engine.h"
#include "harness/evaluate/cell_procedures.h"
#include "harness/evaluate/local_embedder.h"
#include "harness/evaluate/served_quality.h"
#include "harness/evaluate/server_entry.h"
#include "harness/evaluate/stored_values.h"
#include "harness/experiment/config_parts.h"
#include "harness/method/plugins.h"
#include "harness/method/registry.h"
#include "harness/model/attention_projections.h"
#include "harness/storage/hierarchy.h"
#include "kernels/common/cpu_path.h"
#include "metrics/registry.h"

namespace kvarena::evaluate {
namespace {

using experiment::ComponentEntry;
using experiment::ModelEntry;
using nlohmann::json;
using results::CellKind;

EvaluatedMethod build_method(const ComponentEntry& entry) {
  if (entry.name == kServerEntry) return {.method = nullptr};
  const Family family = find_method(entry.name)->family;
  return {.method = make_method(spec_of(entry), entry.label),
          .reference = family == Family::reference,
          .retrieves = family == Family::retrieval};
}

/// Whether `kvarena serve` is behind all entries, which alone compresses a context that a question follows.
bool all_serve_here(const experiment::ExperimentConfig& config, const ModelEntry& model) {
  return std::ranges::all_of(config.methods, [&](const ComponentEntry& method) {
    return method.name != kServerEntry || server_of(model, method).engine == "kvarena";
  });
}

constexpr int64_t kAnyLength = std::numeric_limits<int64_t>::max();

/// Most tokens of a prompt: the window less the answer and the additions of the chat template.
int64_t prompt_room(int64_t window, int64_t answer, const ComponentEntry& workload) {
  constexpr int64_t kTemplateTokens = 64;
  const int64_t room = window - answer - kTemplateTokens;
  if (room > 0) return room;
  fail({.place = fmt::format("workload {}", workload.label),
        .found = fmt::format("answers of up to {} tokens in a window of {}", answer, window),
        .expected = "room for a prompt before the answer",
        .action = "give a smaller engine.max_new_tokens, or a model with a longer window"});
}

/// Answers to each sample in cells of that kind. Throws UserError where they would all be the same.
int64_t draws_of(const experiment::EngineSettings& engine, const datasets::WorkloadInfo& info,
                 const ComponentEntry& workload, CellKind kind) {
  if (kind != CellKind::quality || engine.draws == 1) return 1;
  if (!sampling_of(engine, info.generation).greedy()) return engine.draws;
  fail({.place = fmt::format("engine.draws, workload {}", workload.label),
        .found = fmt::format("{} greedy answers to each sample", engine.draws),
        .expected = "answers that differ",
        .action = "set engine.temperature above 0"});
}

/// Refuses a sample whose question cannot be asked in this way.
void require_context(const ComponentEntry& workload, const datasets::Sample& sample, experiment::Question question) {
  if (question == experiment::Question::seen) return;
  if (in_turns(question) && sample.context.empty()) {
    fail({.place = fmt::format("workload {}: sample {}", workload.label, sample.id),
          .found = fmt::format("one question about its context, and \"question\": \"{}\"", name(question)),
          .expected = "several, as they are turns of a conversation",
          .action = "give the workload more \"questions\" where it has that setting, or \"question\": \"unseen\""});
  }
  if (sample.has_context()) return;
  fail({.place = fmt::format("workload {}: sample {}", workload.label, sample.id),
        .found = "a prompt that does not say where its question starts",
        .expected = "a context in front of it, as the question is to be unseen",
        .action = "give the workload \"question\": \"seen\""});
}

/// The memory behind the device as the config describes it.
std::shared_ptr<const storage::Hierarchy> machine_of(const experiment::ExperimentConfig& config) {
  const experiment::EngineSettings& engine = config.engine;
  storage::TierSettings host{.tier = Tier::host, .link = storage::link_named(engine.host_link, "engine.host_link")};
  if (engine.host_bytes) host.capacity_bytes = *engine.host_bytes;
  if (engine.host_link_bytes_per_s) host.link = storage::at_rate(host.link, *engine.host_link_bytes_per_s);
  const auto on_device = [](const ModelEntry& model) { return model.device != "cpu" && !model.elsewhere(); };
  if (std::ranges::any_of(config.models, on_device)) host.memory = device::pinned_memory;
  std::vector<storage::TierSettings> all{std::move(host)};
  if (!engine.disk_folder.empty()) {
    all.push_back({.tier = Tier::disk,
                   .link = storage::link_named("real", "disk tier"),
                   .folder = engine.disk_folder,
                   .direct_access = true});
  }
  return std::make_shared<const storage::Hierarchy>(all);
}

}  // namespace

ModelEvaluator::ModelEvaluator(const experiment::ExperimentConfig& config, Paths paths)
    : config_(config),
      threads_(omp_get_max_threads()),
      machine_(machine_of(config)),
      paths_(std::move(paths)),
      hashes_(paths_.home / "hashes.json") {
  use_local_embedder(paths_.home);
}

LoadedModel& ModelEvaluator::loaded(const ModelEntry& model) {
  const auto known = models_.find(model.label);
  if (known != models_.end()) return *known->second;
  auto opened = std::make_unique<LoadedModel>(model, paths_.home, machine_);
  return *(models_[model.label] = std::move(opened));
}

SampleCursor& ModelEvaluator::cursor(const ModelEntry& model, const ComponentEntry& workload, CellKind kind) {
  if (kind == CellKind::noise_floor) kind = CellKind::quality;
  auto& slot = cursors_[fmt::format("{}\n{}\n{}", model.label, workload.label, results::name(kind))];
  if (!slot) {
    LoadedModel& opened = loaded(model);
    const int64_t window = opened.config().max_position;
    const experiment::EngineSettings engine = engine_of(config_, workload, kind);
    auto made = datasets::make_workload(workload.name, workload.settings_json, workload.label);
    const int64_t answer = engine.max_new_tokens.value_or(made->info().generation.max_new_tokens);
    // Prompts that are brought to a length are cut then, whatever the workload's own way.
    const int64_t room = workload.request_tokens ? kAnyLength : prompt_room(window, answer, workload);
    const datasets::OpenSettings settings{
        .data_dir = paths_.data_dir,
        .tokens = &opened.tokens(),
        .max_prompt_tokens = std::min(room, engine.max_prompt_tokens.value_or(kAnyLength)),
        .turns = workload.question && in_turns(*workload.question)};
    const auto fits = [this, &opened, model, workload, engine, window](const datasets::Sample& sample) {
      if (const auto& tokens = workload.request_tokens) return tokens->prompt + tokens->answer <= window;
      return opened.fits(sample, engine, question_of(model, workload));
    };
    const int64_t draws = draws_of(engine, made->info(), workload, kind);
    slot = std::make_unique<SampleCursor>(std::move(made), settings, workload.limit.value_or(kAnyLength), fits, draws);
  }
  return *slot;
}

const PrefillFolder* ModelEvaluator::prefills(const ModelEntry& model) {
  const auto [slot, fresh] = prefills_.try_emplace(model.label);
  const int64_t most_bytes = kept_prefill_bytes();
  if (fresh && most_bytes > 0 && model.device == "cpu" && !model.elsewhere()) {
    std::string computer =
        fmt::format("{}\n{}\n{}\n{}", model.parameters_json(false), model_hash(model),
                    hashes_.of(std::filesystem::canonical("/proc/self/exe")), name_of(kernels::active_cpu_path()));
    for (const LoadedPlugin& plugin : loaded_plugins()) computer += "\n" + plugin.sha256;
    slot->second = std::make_unique<PrefillFolder>(paths_.home / "prefills", std::move(computer), most_bytes);
  }
  return slot->second.get();
}

experiment::ModelSize ModelEvaluator::model_size(const ModelEntry& model) {
  const LoadedModel& opened = loaded(model);
  const TransformerOptions options = opened.options();
  experiment::ModelSize size;
  if (model.behind_endpoint()) return size;
  for (const TensorInfo& tensor : opened.opened().checkpoint->tensors()) {
    const int64_t bytes =
        options.weights ? tensor.elements() * kernels::size_of(*options.weights) : tensor.stored_bytes;
    size.weight_bytes += static_cast<double>(bytes);
  }
  for (int64_t layer = 0; layer < opened.config().layers; ++layer) {
    if (opened.config().is_recurrent(layer)) continue;
    size.entry_bytes += static_cast<double>(cache_shape(opened.config(), layer, options.cache).entry_bytes());
  }
  return size;
}

experiment::Question ModelEvaluator::question_of(const ModelEntry& model, const ComponentEntry& workload) {
  using experiment::Question;
  const auto [slot, fresh] = questions_.try_emplace(model.label + "\n" + workload.label);
  if (!fresh) return slot->second;
  std::optional<Question> only;  // protocol of an experiment that knows one
  if (config_.contexts) only = Question::unseen;
  const bool stored = config_.serving && config_.serving->stored_prompts;
  if (config_.remote_prefix || stored) only = Question::seen;
  if (model.behind_endpoint() && !all_serve_here(config_, model)) only = Question::seen;
  if (only && workload.question.value_or(*only) != *only) {
    fail({.place = fmt::format("workload {}: question", workload.label),
          .found = name(*workload.question),
          .expected = fmt::format("{}: {}", name(*only),
                                  config_.contexts        ? "contexts are stored without the questions about them"
                                  : config_.remote_prefix ? "a prompt's stored cache holds all of it"
                                                          : "this server reads a prompt as a whole")});
  }
  const datasets::Sample* first = cursor(model, workload).first();
  const bool told = first != nullptr && first->has_context();
  slot->second = only.value_or(workload.question.value_or(told ? Question::unseen : Question::seen));
  return slot->second;
}

experiment::WorkloadSamples ModelEvaluator::samples(const ModelEntry& model, const ComponentEntry& workload,
                                                    CellKind kind, int64_t most) {
  const experiment::Question question = question_of(model, workload);
  SampleCursor& cursor = this->cursor(model, workload, kind);
  const datasets::Sample* first = cursor.first();
  if (first != nullptr) require_context(workload, *first, question);
  const int64_t answer =
      engine_of(config_, workload, kind).max_new_tokens.value_or(cursor.info().generation.max_new_tokens);
  experiment::WorkloadSamples samples{.answer_tokens = static_cast<double>(answer)};
  constexpr double kBytesOfAToken = 4;
  double all_tokens = 0;
  for (int64_t i = 0; i < most; ++i) {
    const datasets::Sample* sample = cursor.at(i);
    if (sample == nullptr) break;
    require_context(workload, *sample, question);
    samples.ids.push_back(sample->id);
    double tokens = 0;
    for (const datasets::Message& message : sample->messages) {
      tokens += static_cast<double>(message.content.size()) / kBytesOfAToken;
    }
    all_tokens += tokens;
    samples.most_prompt_tokens = std::max(samples.most_prompt_tokens, tokens);
  }
  samples.left_out = cursor.left_out();
  samples.prompt_tokens = all_tokens / std::max(1.0, static_cast<double>(samples.ids.size()));
  if (const auto& tokens = workload.request_tokens) {
    samples.prompt_tokens = samples.most_prompt_tokens = static_cast<double>(tokens->prompt);
    samples.answer_tokens = static_cast<double>(tokens->answer);
  }
  return samples;
}

void ModelEvaluator::begin_model(const ModelEntry& model, const experiment::EngineSettings& engine) {
  omp_set_num_threads(engine.threads > 0 ? static_cast<int>(engine.threads) : threads_);
  LoadedModel& opened = loaded(model);
  if (model.behind_endpoint()) return;
  if (opened.elsewhere() != nullptr) return opened.elsewhere()->load(engine.threads);
  (void)opened.transformer();
}

void ModelEvaluator::end_model(const ModelEntry& model) {
  open_ = {};
  served_.erase(model.label);
  std::erase_if(cursors_, [&](const auto& item) { return item.first.starts_with(model.label + "\n"); });
  models_.erase(model.label);
}

std::vector<results::MetricDefinition> metric_definitions() {
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

std::vector<experiment::SampleOutcome> ModelEvaluator::evaluate(const experiment::EvalTask& task) {
  SampleCursor& samples = cursor(task.model, task.workload, task.kind);
  const experiment::Question question = question_of(task.model, task.workload);
  std::string of;
  if (task.kind == CellKind::quality && shares_context(question)) {
    const datasets::Sample* sample = samples.at(task.sample_index);
    if (sample != nullptr && !sample->context.empty()) of = sample->context;
  }
  if (task.kind == CellKind::quality && config_.engine.draws > 1 && of.empty()) {
    of = fmt::format("{}\n{}", task.workload.label, task.sample_index / config_.engine.draws);
  }
  if (task.kind == CellKind::serving && config_.contexts) of = "stored contexts";
  const bool shared = !of.empty();
  for (const experiment::PlannedCell* cell : task.cells) of += "\n" + cell->record.cell_id;
  if (!shared || of != open_.of) {
    open_ = {};
    open_.of = shared ? of : "";
    for (const experiment::PlannedCell* cell : task.cells) open_.methods.push_back(build_method(*cell->method));
    if (shared && task.kind == CellKind::quality) {
      open_.prompt.last = task.next.empty() || !samples.same_context(task.sample_index, task.next.front());
    }
  }
  return procedure_of(task.kind, config_)({.config = config_,
                                           .task = task,
                                           .model = loaded(task.model),
                                           .samples = samples,
                                           .methods = open_.methods,
                                           .served = served_[task.model.label],
                                           .context = shared ? &open_.prompt : nullptr,
                                           .prefills = prefills(task.model),
                                           .stored = open_.stored,
                                           .question = question,
                                           .hardware = paths_.hardware});
}

/// Returns, for a sweep, the largest load that was served: attainment at its goal there and at every smaller one
/// (DistServe's goodput of a server). Other metrics are means over samples, which the database's views give.
std::vector<results::MetricValue> ModelEvaluator::cell_values(const experiment::PlannedCell& cell,
                                                              const results::ResultsReader& results) {
  if (cell.record.kind != results::CellKind::serving || config_.serving->arrivals == "clients") return {};
  std::vector<results::MetricValue> values;
  for (const results::Clock clock : {results::Clock::measured, results::Clock::modelled}) {
    const auto rates = results.values(cell.record.cell_id, metrics::kOfferedRequestsPerS.name, clock);
    const auto attained = results.values(cell.record.cell_id, metrics::kAttainment.name, clock);
    if (rates.empty() || rates.size() != attained.size()) continue;
    std::map<double, double> sweep;
    for (size_t i = 0; i < rates.size(); ++i) sweep[rates[i].value] = attained[i].value;
    double served = 0;
    for (const auto& [rate, attainment] : sweep) {
      if (attainment < config_.serving->attainment) break;
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
  return {.methods =
              [](const std::string& name, const json& settings, const std::string& place) {
                if (name == kServerEntry) return check_server_entry(settings, place);
                json spec = settings;
                spec["name"] = name;
                return check_method(spec, place);
              },
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
              },
          .follows_memory =
              [](const std::string& name, const json& settings) {
                json spec = settings;
                spec["name"] = name;
                std::vector<std::string> problems;
                const auto method = Method::build(spec, "", problems);
                return problems.empty() && method->follows_memory();
              }};
}

}  // namespace kvarena::evaluate
