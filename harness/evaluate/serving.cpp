#include "harness/evaluate/serving.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/engine/method_cost.h"
#include "harness/engine/serving/modelled_executor.h"
#include "harness/engine/serving/serving_engine.h"
#include "harness/evaluate/describe.h"
#include "harness/evaluate/serving_point.h"
#include "harness/evaluate/session_load.h"
#include "harness/evaluate/stored_start.h"
#include "harness/evaluate/stored_values.h"

namespace kvarena::evaluate {
namespace {

using experiment::SampleOutcome;
using experiment::ServingSettings;
using results::Clock;
using serving::ServingRun;

/// One method's requests, served.
struct Served {
  ServingRun run;
  std::vector<std::optional<ServedAnswer>> answers;  // by request
  std::vector<double> scores;                        // 0 for what was not answered
  std::vector<int64_t> prompt_tokens;
  std::vector<int64_t> full_bytes;  // of each prompt's full cache
  results::Storage storage = results::Storage::real;
};

Served serve_with(Transformer& model, const ServingTask& task, const Method& method, serving::Load load) {
  std::vector<ServedRequest> requests;
  const auto memory = reuse_memory(task.requests.front());
  for (const Request& request : task.requests) {
    requests.push_back({.prompt = request.prompt,
                        .method = &method,
                        .options = session_options(request),
                        .layout = request.layout,
                        .memory = memory});
    if (task.settings.stored_prompts) store_start(model, request, requests.back());
    if (const Reuser* reuser = method.reuser()) prime(model, request.prompt, request.layout, *reuser, *memory);
  }
  ServingEngine engine(model, std::move(requests), task.requests.front().facts);
  Served served{.run = serving::serve(std::move(load), engine, batch_settings(task.settings))};
  for (size_t i = 0; i < task.requests.size(); ++i) {
    const Request& request = task.requests[i];
    served.answers.push_back(engine.answer(static_cast<int64_t>(i)));
    served.scores.push_back(served.answers.back() ? score_of(request, served.answers.back()->tokens) : 0);
    served.prompt_tokens.push_back(request.asked_tokens());
    served.full_bytes.push_back(engine.full_bytes(static_cast<int64_t>(request.prompt.size())));
  }
  const bool loaded = std::ranges::any_of(
      served.answers, [](const auto& answer) { return answer && answer->activity.traffic.loaded_bytes > 0; });
  const bool chunks = method.reuser() != nullptr && task.requests.front().chunk_tier != Tier::device;
  served.storage = storage_of(task.requests.front(), loaded || chunks || task.settings.stored_prompts);
  return served;
}

/// Costs of a method that selects, measured on the longest prompt; empty for a method that attends to all it keeps.
std::vector<MethodCost> selection_costs(Transformer& model, const ServingTask& task, const Method& method,
                                        const Activity& activity) {
  const auto length = [](const Request& request) { return request.prompt.size(); };
  const Request& longest = *std::ranges::max_element(task.requests, {}, length);
  if (activity.entries_skipped == 0 || std::ssize(longest.prompt) < kCostSteps + 2) return {};
  return measure_costs(model, method, longest.prompt, longest.facts, "method");
}

/// Executes the requests on the described machine, with the answers and kept bytes of the real run. `costs`: those of
/// selection_costs().
serving::ModelledExecutor modelled_executor(const Transformer& model, const ServingTask& task, const Served& served,
                                            std::span<const MethodCost> costs) {
  const ModelConfig& config = model.config();
  const auto parameters = static_cast<double>(model.weight_numbers());
  std::vector<serving::ModelledRequest> requests;
  for (size_t i = 0; i < task.requests.size(); ++i) {
    const int64_t prompt = task.requests[i].asked_tokens();
    const auto full = static_cast<double>(served.full_bytes[i]);
    serving::ModelledRequest request{.prompt_tokens = prompt,
                                     .bytes_per_token = full / static_cast<double>(task.requests[i].prompt.size())};
    if (const auto& answer = served.answers[i]) {
      request.output_tokens = static_cast<int64_t>(answer->tokens.size());
      request.scheme.keep = static_cast<double>(answer->resident_bytes) / full;
    }
    if (!costs.empty()) {
      request.scheme = scheme_at(costs, request.bytes_per_token, prompt + request.output_tokens);
      request.answer_kept = request.scheme.keep;
    }
    requests.push_back(request);
  }
  return {*task.machine,
          {.weight_bytes = static_cast<double>(model.weight_bytes()),
           .flops_per_token = 2 * parameters,
           .flops_per_entry = 4.0 * static_cast<double>(config.cached_layers() * config.q_heads * config.head_dim),
           .kernels = cost_model::kernels_of(config.layers, config.qk_norm)},
          std::move(requests)};
}

ServingRun run_modelled(const Transformer& model, const ServingTask& task, const Served& served, serving::Load load,
                        std::span<const MethodCost> costs = {}) {
  serving::ModelledExecutor executor = modelled_executor(model, task, served, costs);
  return serving::serve(std::move(load), executor, batch_settings(task.settings));
}

/// Describes the point's requests as one sample of the cell.
void describe_point(results::SampleResult& result, const ServingTask& task, const Served& served) {
  const std::string prompts = describe_prompts(result, task.requests);
  for (const auto& answer : served.answers) {
    if (answer) result.output_tokens += static_cast<int64_t>(answer->tokens.size());
  }
  describe_requests(result, task.settings, served.run, prompts, served.scores);
}

Activity total_activity(const Served& served) {
  Activity total;
  for (const auto& answer : served.answers) {
    if (answer) total += answer->activity;
  }
  return total;
}

ScoredRun scored(const Served& served, const ServingRun& run, double rate, const Served& reference) {
  return {.run = run,
          .rate = rate,
          .scores = served.scores,
          .full_scores = reference.scores,
          .prompt_tokens = served.prompt_tokens};
}

}  // namespace

std::vector<SampleOutcome> evaluate_serving(Transformer& model, const ServingTask& task,
                                            std::span<const EvaluatedMethod> methods) {
  const Method full;  // the base keeps everything
  const Served reference = serve_with(model, task, full, all_at_once(task.requests.size()));
  if (const std::string trouble = trouble_of(reference.run); !trouble.empty()) {
    throw UserError(fmt::format("full KV, which loads are measured by: {}", trouble));
  }
  const double capacity = capacity_of(reference.run);
  const bool modelled = task.machine && !task.settings.stored_prompts;
  const double modelled_capacity =
      modelled ? capacity_of(run_modelled(model, task, reference, all_at_once(task.requests.size()))) : 0;

  const ServingPoint point{.settings = task.settings,
                           .requests = task.requests.size(),
                           .point = task.point,
                           .seed = task.seed,
                           .asked = task.requests};
  std::vector<SampleOutcome> outcomes;
  for (const EvaluatedMethod& evaluated : methods) {
    SampleOutcome& outcome = outcomes.emplace_back();
    results::SampleResult& result = outcome.result;
    double rate = 0;
    if (task.settings.stored_prompts) outcome.failure = stored_start_problem(evaluated);
    if (!outcome.failure.empty()) continue;
    const Served served = serve_with(model, task, *evaluated.method, load_of(point, capacity, rate));
    outcome.failure = trouble_of(served.run);
    if (!outcome.failure.empty()) continue;
    describe_point(result, task, served);
    const Activity activity = total_activity(served);
    add_activity(result, activity);
    add_turns(result, point, served.run);
    result.active = evaluated.reference || activity.acted();
    add_run(result, {.clock = Clock::measured, .storage = served.storage}, task.settings,
            scored(served, served.run, rate, reference));
    const bool own_prompts = evaluated.method->reuser() != nullptr;
    if (!modelled || own_prompts || evaluated.method->verifier() != nullptr || evaluated.method->looks_ahead())
      continue;
    serving::Load load = load_of(point, modelled_capacity, rate);
    const ServingRun run =
        run_modelled(model, task, served, std::move(load), selection_costs(model, task, *evaluated.method, activity));
    add_run(result, {.clock = Clock::modelled}, task.settings, scored(served, run, rate, reference));
  }
  return outcomes;
}

std::optional<cost_model::Hardware> serving_machine(const std::string& name, const std::filesystem::path& folder) {
  if (name.empty()) return std::nullopt;
  return cost_model::read_hardware(cost_model::find_description(name, folder));
}

}  // namespace kvarena::evaluate
