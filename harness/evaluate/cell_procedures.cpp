#include "harness/evaluate/cell_procedures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/evaluate/foreign_quality.h"
#include "harness/evaluate/live_conversation.h"
#include "harness/evaluate/method_files.h"
#include "harness/evaluate/perplexity.h"
#include "harness/evaluate/quality.h"
#include "harness/evaluate/remote_prefix.h"
#include "harness/evaluate/served_cells.h"
#include "harness/evaluate/served_timing.h"
#include "harness/evaluate/serving.h"
#include "harness/evaluate/shared_prefix.h"
#include "harness/evaluate/stored_set.h"
#include "harness/evaluate/timing.h"
#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::evaluate {
namespace {

using experiment::EngineSettings;
using experiment::SampleOutcome;
using nlohmann::json;

const datasets::Sample& sample_of(const OpenTask& open) {
  const experiment::EvalTask& task = open.task;
  const datasets::Sample* sample = open.samples.at(task.sample_index);
  KVARENA_ASSERT(sample != nullptr && sample->id == task.sample_id,
                 fmt::format("sample {} of {} is not {}", task.sample_index, task.workload.label, task.sample_id));
  return *sample;
}

uint64_t seed_of(const OpenTask& open) { return static_cast<uint64_t>(open.config.engine.seed); }

// --- quality and noise floor

/// `index`: the sample's, which tells the draw.
Request scored_request(const OpenTask& open, const datasets::Sample& sample, int64_t index) {
  EngineSettings engine = open.config.engine;
  engine.seed += index % engine.draws;
  Request request = open.model.request(sample, engine, score_metrics(open.samples.info(), open.config), open.question);
  request.judged = judge_metrics(open.samples.info(), open.config);
  request.selections = lists_metric(open.config, metrics::kAttentionHitRate.name);
  request.retrievals = open.task.model.device == "cpu";  // a device would have to bring its keys to the host
  request.token_overlaps = lists_metric(open.config, metrics::kTokenOverlap.name);
  request.prompt_attention = lists_metric(open.config, metrics::kPromptAttentionKept.name);
  if (is_live(request)) {
    request.continued = [&open, index](const datasets::Sample& further) {
      return scored_request(open, further, index);
    };
  }
  return request;
}

/// Refuses what is evaluated with the caches of a model of ours alone.
void require_questions(const OpenTask& open, const Request& request) {
  const bool scored = is_scored_text(*request.sample);
  if (!scored && !is_live(request)) return;
  fail({.place = fmt::format("workload {}", open.task.workload.label),
        .found = scored ? "a text that is scored token by token" : "a conversation that goes on with what was answered",
        .expected = "questions to answer, where another engine computes or requests are served"});
}

/// Cells of kind quality, or with `chunk` noise floor, of a model that another engine computes.
std::vector<SampleOutcome> cells_elsewhere(const OpenTask& open, const Request& request, int64_t chunk = 0) {
  require_questions(open, request);
  std::vector<ForeignMethod> methods;
  for (size_t i = 0; i < open.methods.size(); ++i) {
    ForeignMethod& method = methods.emplace_back();
    method.spec = spec_of(*open.task.cells[i]->method);
    method.reference = open.methods[i].reference;
  }
  return evaluate_quality_elsewhere(*open.model.elsewhere(), request, methods, chunk);
}

/// The setting that all others of a model behind an endpoint are compared with, evaluated or not.
CompletionEndpoint& baseline_server(const OpenTask& open) {
  const auto baseline = std::ranges::find_if(open.config.methods, &experiment::ComponentEntry::baseline);
  return open.model.server(*baseline);
}

/// A sample that is asked while others are read.
std::shared_ptr<const AskedSamples> asked_sample(const OpenTask& open, int64_t index) {
  auto asked = std::make_shared<AskedSamples>();
  asked->samples.push_back(*open.samples.at(index));
  asked->requests.push_back(scored_request(open, asked->samples.front(), index));
  require_questions(open, asked->requests.front());
  return asked;
}

std::vector<SampleOutcome> quality_cell(const OpenTask& open) {
  if (open.task.model.behind_endpoint()) {
    return open.served.quality(open, [&](int64_t index) { return asked_sample(open, index); });
  }
  const Request request = scored_request(open, sample_of(open), open.task.sample_index);
  if (open.model.elsewhere() != nullptr) return cells_elsewhere(open, request);
  Transformer& model = open.model.transformer();
  if (is_scored_text(*request.sample)) return evaluate_perplexity(model, request, open.methods, kPrefillChunk);
  return evaluate_quality(model, request, open.methods, open.context, open.prefills);
}

std::vector<SampleOutcome> noise_floor_cell(const OpenTask& open) {
  const Request request = scored_request(open, sample_of(open), open.task.sample_index);
  if (open.task.model.behind_endpoint()) {
    require_questions(open, request);
    return {evaluate_noise_floor_served(baseline_server(open), request, open.task.model.prompts)};
  }
  if (open.model.elsewhere() != nullptr) return cells_elsewhere(open, request, kOtherChunk);
  Transformer& model = open.model.transformer();
  if (is_scored_text(*request.sample)) return evaluate_perplexity(model, request, open.methods, kOtherChunk);
  return outcomes_of(open.methods,
                     [&](const EvaluatedMethod& method) { return evaluate_noise_floor(model, request, method); });
}

// --- timing

Request timed_request(const OpenTask& open, const datasets::Sample& sample) {
  const std::optional<experiment::RequestTokens>& tokens = open.task.workload.request_tokens;
  Request request =
      open.model.request(sample, engine_of(open.config, open.task.workload, open.task.kind), {}, open.question, tokens);
  if (tokens || open.config.timing->ignore_eos) request.stop = {.max_new_tokens = request.stop.max_new_tokens};
  return request;
}

/// The config's settings with the batch of the method's cell.
experiment::TimingSettings timing_of(const OpenTask& open, const EvaluatedMethod& method) {
  experiment::TimingSettings timing = *open.config.timing;
  const experiment::PlannedCell* cell = open.task.cells[static_cast<size_t>(&method - open.methods.data())];
  timing.batch = json::parse(cell->record.engine_json).at("batch").get<int64_t>();
  return timing;
}

std::vector<SampleOutcome> timing_cell(const OpenTask& open) {
  const Request request = timed_request(open, sample_of(open));
  return outcomes_of(open.methods, [&](const EvaluatedMethod& method) {
    if (open.task.model.behind_endpoint()) {
      const experiment::PlannedCell* cell = open.task.cells[static_cast<size_t>(&method - open.methods.data())];
      return evaluate_timing_served(open.model.server(*cell->method), request, open.task.model.prompts,
                                    timing_of(open, method));
    }
    return evaluate_timing(open.model.transformer(), request, method, timing_of(open, method));
  });
}

std::vector<SampleOutcome> remote_prefix_cell(const OpenTask& open) {
  const int64_t prompts = open.config.remote_prefix->prompts;
  std::vector<datasets::Sample> samples;
  for (int64_t i = 0; i < prompts; ++i) samples.push_back(*open.samples.at(open.task.sample_index * prompts + i));
  std::vector<Request> requests;
  for (const datasets::Sample& sample : samples) requests.push_back(timed_request(open, sample));
  return outcomes_of(open.methods, [&](const EvaluatedMethod& method) {
    return evaluate_remote_prefix(
        open.model.transformer(), requests, method,
        {.timing = timing_of(open, method), .links = *open.config.remote_prefix, .seed = seed_of(open)});
  });
}

// --- serving

/// A point's samples: the next so many of the workload after those of the points before; as contexts, the first.
std::vector<datasets::Sample> point_samples(const OpenTask& open, int64_t point) {
  const json identity = json::parse(open.task.cells.front()->record.engine_json);
  const auto count = identity.at("requests").get<int64_t>();
  const int64_t first = open.config.contexts ? 0 : point * count;
  std::vector<datasets::Sample> samples;
  for (int64_t i = 0; i < count; ++i) samples.push_back(*open.samples.at(first + i));
  return samples;
}

/// A point's requests, with the text that all begin with where there is one.
AskedSamples served_requests(const OpenTask& open, int64_t point) {
  const experiment::ServingSettings& settings = *open.config.serving;
  const EngineSettings engine = engine_of(open.config, open.task.workload, open.task.kind);
  AskedSamples asked{.samples = point_samples(open, point), .requests = {}};
  if (settings.shared_prefix > 0) {
    const std::string prefix = prefix_text(open.model.tokens(), settings.shared_prefix);
    for (datasets::Sample& sample : asked.samples) put_in_front(prefix, sample);
  }
  for (const datasets::Sample& sample : asked.samples) {
    Request& request = asked.requests.emplace_back(
        open.model.request(sample, engine, score_metrics(open.samples.info(), open.config), open.question));
    if (is_live(request)) require_questions(open, request);
    if (settings.ignore_eos) request.stop = {.max_new_tokens = request.stop.max_new_tokens};
  }
  return asked;
}

ServingTask serving_task(const OpenTask& open, const AskedSamples& asked, int64_t point) {
  const experiment::ServingSettings& settings = *open.config.serving;
  return {.settings = settings,
          .requests = asked.requests,
          .point = static_cast<size_t>(point),
          .seed = seed_of(open),
          .machine = serving_machine(settings.hardware, open.hardware)};
}

std::vector<SampleOutcome> serving_cell(const OpenTask& open) {
  if (open.task.model.behind_endpoint()) {
    return open.served.serving(
        open, [&](int64_t point) { return std::make_shared<const AskedSamples>(served_requests(open, point)); },
        [&](const AskedSamples& asked, int64_t point) { return serving_task(open, asked, point); });
  }
  const AskedSamples asked = served_requests(open, open.task.sample_index);
  return evaluate_serving(open.model.transformer(), serving_task(open, asked, open.task.sample_index), open.methods);
}

/// The samples as contexts with the questions of the config's file about each, or with questions made from its text.
std::vector<ContextWithQueries> contexts_of(const OpenTask& open, std::span<const datasets::Sample> samples,
                                            const EngineSettings& engine) {
  const experiment::ContextSettings& settings = *open.config.contexts;
  std::map<std::string, datasets::ContextQuestions> questions;
  if (!settings.questions.empty()) questions = datasets::read_questions(settings.questions);
  std::vector<ContextWithQueries> contexts;
  for (const datasets::Sample& sample : samples) {
    const auto given = questions.find(sample.id);
    if (given == questions.end() && !settings.questions.empty()) {
      fail({.place = settings.questions,
            .found = fmt::format("no question about \"{}\"", sample.id),
            .expected = "at least one for every sample"});
    }
    contexts.push_back(
        ask_about(open.model, sample, engine, settings, given == questions.end() ? nullptr : &given->second));
  }
  return contexts;
}

/// Compares answers with full KV's, whatever the metric.
AnswerSimilarity similarity_by(const std::string& metric) {
  return [&metric = metrics::find_metric(metric)](const Request& request, std::span<const int32_t> answer,
                                                  std::span<const int32_t> full) {
    const std::vector<std::string> reference = {answer_text(request, full)};
    const json extras = json::parse(request.sample->extras);
    return metrics::score_sample(metric, {answer_text(request, answer), reference, extras}).score;
  };
}

std::vector<SampleOutcome> stored_contexts_cell(const OpenTask& open) {
  const EngineSettings engine = engine_of(open.config, open.task.workload, open.task.kind);
  const std::vector<datasets::Sample> samples = point_samples(open, open.task.sample_index);
  const std::vector<ContextWithQueries> asked = contexts_of(open, samples, engine);
  const StoredContextsTask task{
      .serving = *open.config.serving,
      .contexts = *open.config.contexts,
      .asked = asked,
      .facts = open.model.facts(),
      .folder = engine.disk_folder.empty() ? std::filesystem::temp_directory_path().string() : engine.disk_folder,
      .similarity = similarity_by(open.config.contexts->quality),
      .point = static_cast<size_t>(open.task.sample_index),
      .seed = seed_of(open)};
  if (!open.stored) open.stored = read_stored_set(open.model.transformer(), task, open.methods);
  return evaluate_stored_contexts(open.model.transformer(), task, *open.stored, open.methods);
}

}  // namespace

CellProcedure procedure_of(results::CellKind kind, const experiment::ExperimentConfig& config) {
  switch (kind) {
    case results::CellKind::quality: return quality_cell;
    case results::CellKind::noise_floor: return noise_floor_cell;
    case results::CellKind::timing: return config.remote_prefix ? remote_prefix_cell : timing_cell;
    case results::CellKind::serving: return config.contexts ? stored_contexts_cell : serving_cell;
  }
  KVARENA_ASSERT(false, "a cell of no kind");
  return nullptr;
}

EngineSettings engine_of(const experiment::ExperimentConfig& config, const experiment::ComponentEntry& workload,
                         results::CellKind kind) {
  EngineSettings engine = config.engine;
  std::optional<int64_t> own;
  if (kind == results::CellKind::timing) own = config.timing->max_new_tokens;
  if (kind == results::CellKind::serving) own = config.serving->max_new_tokens;
  if (workload.request_tokens) own = workload.request_tokens->answer;
  if (own) engine.max_new_tokens = own;
  return engine;
}

namespace {

/// Metrics of a workload, then of the config, each once: those that score a prediction, of a judge's words or not.
std::vector<std::string> scoring(const datasets::WorkloadInfo& workload, const experiment::ExperimentConfig& config,
                                 bool judged) {
  std::vector<std::string> ids;
  const auto add = [&](const std::string& id) {
    const metrics::MetricEntry& metric = metrics::find_metric(id);
    const bool wanted = metric.score != nullptr && (metric.judge != nullptr) == judged;
    if (wanted && std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  };
  std::ranges::for_each(workload.metrics, add);
  std::ranges::for_each(config.metrics, add, &experiment::ComponentEntry::name);
  return ids;
}

}  // namespace

std::vector<std::string> score_metrics(const datasets::WorkloadInfo& workload,
                                       const experiment::ExperimentConfig& config) {
  return scoring(workload, config, /*judged=*/false);
}

std::vector<std::string> judge_metrics(const datasets::WorkloadInfo& workload,
                                       const experiment::ExperimentConfig& config) {
  return scoring(workload, config, /*judged=*/true);
}

bool lists_metric(const experiment::ExperimentConfig& config, const std::string& metric) {
  return std::ranges::find(config.metrics, metric, &experiment::ComponentEntry::name) != config.metrics.end();
}

}  // namespace kvarena::evaluate
