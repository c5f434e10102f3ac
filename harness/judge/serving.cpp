#include "harness/judge/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "datasets/arrivals.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/engine/serving_engine.h"
#include "harness/judge/describe.h"
#include "harness/throughput/hardware.h"
#include "metrics/latency/serving.h"
#include "metrics/registry.h"
#include "metrics/statistics.h"

namespace kvarena::judge {
namespace {

using experiment::ServingSettings;
using experiment::Verdict;
using nlohmann::json;
using serving::Outcome;
using serving::ServingRun;
using store::Clock;

constexpr double kMilliseconds = 1e3;
constexpr double kMebi = 1024.0 * 1024.0;

/// One method's requests, served.
struct Served {
  ServingRun run;
  std::vector<std::optional<ServedAnswer>> answers;  // by request
  std::vector<double> scores;                        // 0 for what was not answered
  std::vector<int64_t> full_bytes;                   // of each prompt's full cache
};

serving::BatchSettings batch_settings(const ServingSettings& settings) {
  return {.cache_bytes = static_cast<int64_t>(settings.cache_mib * kMebi),
          .pass_tokens = settings.pass_tokens,
          .max_running = settings.max_running};
}

double score_of(const Request& request, const ServedAnswer& answer) {
  if (request.metrics.empty()) return 0;
  const std::string text = answer_text(request, answer.tokens);
  const json extras = json::parse(request.sample->extras);
  return score_sample(find_metric(request.metrics.front()), {text, request.sample->references, extras}).score;
}

Served serve_with(Transformer& model, const ServingTask& task, const Method& method, serving::Load load) {
  std::vector<ServedRequest> requests;
  for (const Request& request : task.requests) {
    requests.push_back(
        {.prompt = request.prompt, .method = &method, .options = {.stop = request.stop, .sampling = request.sampling}});
  }
  ServingEngine engine(model, std::move(requests), task.requests.front().facts);
  Served served{.run = serving::serve(std::move(load), engine, batch_settings(task.settings))};
  for (size_t i = 0; i < task.requests.size(); ++i) {
    const Request& request = task.requests[i];
    served.answers.push_back(engine.answer(static_cast<int64_t>(i)));
    served.scores.push_back(served.answers.back() ? score_of(request, *served.answers.back()) : 0);
    served.full_bytes.push_back(engine.full_bytes(static_cast<int64_t>(request.prompt.size())));
  }
  return served;
}

serving::Load all_at_once(size_t requests) { return serving::Load::at_times(std::vector<double>(requests, 0)); }

/// The first arrivals of a trace that no earlier point has had, from time 0, at `rate` on the whole.
std::vector<double> trace_arrivals(const ServingTask& task, double rate) {
  const size_t count = task.requests.size();
  ArrivalReader reader(task.settings.trace);
  std::vector<double> times;
  for (size_t row = 0; row < (task.point + 1) * count; ++row) {
    const std::optional<Arrival> arrival = reader.next();
    if (!arrival) {
      fail({.place = task.settings.trace,
            .found = fmt::format("{} requests", row),
            .expected = fmt::format("at least {}, {} for each point", task.settings.load.size() * count, count),
            .action = "ask for fewer requests or take a longer trace"});
    }
    if (row >= task.point * count) times.push_back(arrival->time_s);
  }
  std::ranges::sort(times);
  const double first = times.front(), span = times.back() - times.front();
  const double stretch = span > 0 ? static_cast<double>(count - 1) / rate / span : 0;
  for (double& time : times) time = (time - first) * stretch;
  return times;
}

/// How the point's requests arrive when full KV serves `capacity` requests a second; `rate` is set to what is offered.
serving::Load load_of(const ServingTask& task, double capacity, double& rate) {
  const double value = task.settings.load[task.point];
  if (task.settings.arrivals == "clients") {
    rate = std::numeric_limits<double>::quiet_NaN();
    return serving::Load::of_clients(static_cast<int64_t>(value), static_cast<int64_t>(task.requests.size()));
  }
  rate = value * capacity;
  if (task.settings.arrivals == "trace") return serving::Load::at_times(trace_arrivals(task, rate));
  return serving::Load::at_times(poisson_arrivals(rate, task.requests.size(), task.seed + task.point));
}

double capacity_of(const ServingRun& run) { return static_cast<double>(run.requests.size()) / run.seconds; }

/// The same requests on the described machine, as the real run left them.
serving::ModelledExecutor modelled_executor(const Transformer& model, const ServingTask& task, const Served& served) {
  const ModelConfig& config = model.config();
  const auto parameters =
      static_cast<double>(model.weight_bytes()) / static_cast<double>(kernels::size_of(model.options().weights));
  std::vector<serving::ModelledRequest> requests;
  for (size_t i = 0; i < task.requests.size(); ++i) {
    const auto prompt = static_cast<int64_t>(task.requests[i].prompt.size());
    const auto full = static_cast<double>(served.full_bytes[i]);
    serving::ModelledRequest request{.prompt_tokens = prompt, .bytes_per_token = full / static_cast<double>(prompt)};
    if (const auto& answer = served.answers[i]) {
      request.output_tokens = static_cast<int64_t>(answer->tokens.size());
      request.kept = static_cast<double>(answer->resident_bytes) / full;
    }
    requests.push_back(request);
  }
  return {*task.machine,
          {.weight_bytes = static_cast<double>(model.weight_bytes()),
           .flops_per_token = 2 * parameters,
           .flops_per_entry = 4.0 * static_cast<double>(config.layers * config.q_heads * config.head_dim)},
          std::move(requests)};
}

ServingRun run_modelled(const Transformer& model, const ServingTask& task, const Served& served, serving::Load load) {
  serving::ModelledExecutor executor = modelled_executor(model, task, served);
  return serving::serve(std::move(load), executor, batch_settings(task.settings));
}

/// Tokens that come together, as those of a verification round do, share the time since the token before them.
std::vector<double> spread_bursts(std::vector<double> times) {
  for (size_t i = 1; i < times.size();) {
    size_t end = i;
    while (end < times.size() && times[end] == times[i]) ++end;
    const double start = times[i - 1], step = (times[end - 1] - start) / static_cast<double>(end - i);
    for (size_t k = i; k < end; ++k) times[k] = start + step * static_cast<double>(k - i + 1);
    i = end;
  }
  return times;
}

void add(store::SampleResult& result, Clock clock, const std::string& name, double value, const std::string& unit) {
  result.values.push_back({.metric = name, .value = value, .unit = unit, .clock = clock});
}

void add_spread(store::SampleResult& result, Clock clock, const std::string& name, const LatencySummary& seconds) {
  add(result, clock, "mean_" + name, seconds.mean * kMilliseconds, "ms");
  add(result, clock, "p50_" + name, seconds.p50 * kMilliseconds, "ms");
  add(result, clock, "p90_" + name, seconds.p90 * kMilliseconds, "ms");
  add(result, clock, "p99_" + name, seconds.p99 * kMilliseconds, "ms");
}

void add_series(store::SampleResult& result, Clock clock, const std::string& name, const std::vector<double>& seconds) {
  store::Series series{.name = name, .unit = "ms", .clock = clock};
  for (const double value : seconds) series.values.push_back(static_cast<float>(value * kMilliseconds));
  result.series.push_back(std::move(series));
}

/// Everything that a run says on its clock. `full_scores` are of full KV.
void add_run(store::SampleResult& result, Clock clock, const ServingTask& task, const ServingRun& run, double rate,
             const std::vector<double>& scores, const std::vector<double>& full_scores) {
  std::vector<RequestTimes> times;
  std::vector<double> first, queueing;
  for (size_t i = 0; i < run.requests.size(); ++i) {
    const serving::Timeline& request = run.requests[i];
    if (request.outcome != Outcome::answered) continue;
    times.push_back({.arrival_s = request.arrival_s,
                     .prompt_tokens = static_cast<int64_t>(task.requests[i].prompt.size()),
                     .token_times_s = spread_bursts(request.token_s)});
    first.push_back(request.token_s.front() - request.arrival_s);
    queueing.push_back(request.admitted_s - request.arrival_s);
  }
  const ServiceLevel level{.time_to_first_token_s = task.settings.time_to_first_token_ms / kMilliseconds,
                           .time_per_output_token_s = task.settings.time_per_output_token_ms / kMilliseconds};
  const ServingSummary summary = serving_summary(times, level);
  // What was refused or failed has met nothing.
  const double answered = static_cast<double>(times.size()) / static_cast<double>(run.requests.size());
  add(result, clock, "offered_requests_per_s", rate, "requests/s");
  add_spread(result, clock, "time_to_first_token_ms", summary.time_to_first_token_s);
  add_spread(result, clock, "queueing_ms", summarize(queueing));
  add_spread(result, clock, "inter_token_latency_ms", summary.inter_token_latency_s);
  add(result, clock, "served_tokens_per_s", summary.output_tokens_per_s, "tokens/s");
  add(result, clock, "served_requests_per_s", summary.requests_per_s, "requests/s");
  add(result, clock, "attainment", summary.attainment * answered, "fraction");
  add(result, clock, "goodput_latency_per_s", summary.goodput_requests_per_s, "requests/s");
  const ScoreGoodput goodput = score_goodput(scores, full_scores, summary.duration_s, task.settings.score_share);
  add(result, clock, "goodput_score_per_s", goodput.goodput_per_s, "requests/s");
  add_series(result, clock, "time_to_first_token_ms", first);
  add_series(result, clock, "queueing_ms", queueing);
}

/// The point's requests as one sample of the cell.
void describe_point(store::SampleResult& result, const ServingTask& task, const Served& served) {
  std::string prompts;
  for (const Request& request : task.requests) {
    prompts += request.sample->prompt_sha256;
    result.prompt_tokens += static_cast<int64_t>(request.prompt.size());
    result.truncated_tokens += request.sample->truncation.tokens_removed;
  }
  result.prompt_sha256 = sha256(prompts);
  result.finish_reason = "served";
  int64_t refused = 0;
  for (const serving::Timeline& request : served.run.requests) refused += request.outcome == Outcome::refused;
  for (const auto& answer : served.answers) {
    if (answer) result.output_tokens += static_cast<int64_t>(answer->tokens.size());
  }
  result.wall_s = served.run.busy_seconds;
  add(result, Clock::none, "served_score", mean_of(served.scores), "fraction");
  add(result, Clock::measured, "peak_cache_bytes", static_cast<double>(served.run.peak_held_bytes), "bytes");
  add(result, Clock::none, "refused_requests", static_cast<double>(refused), "requests");
}

Activity total_activity(const Served& served) {
  Activity total;
  for (const auto& answer : served.answers) {
    if (!answer) continue;
    total.entries_dropped += answer->activity.entries_dropped;
    total.entries_packed += answer->activity.entries_packed;
    total.entries_skipped += answer->activity.entries_skipped;
    total.tokens_drafted += answer->activity.tokens_drafted;
    total.tokens_accepted += answer->activity.tokens_accepted;
  }
  return total;
}

/// Why a method has no result at this point, "" when it has: one of its requests failed, or none was answered.
std::string trouble_of(const ServingRun& run) {
  std::string refusal;
  bool answered = false;
  for (const serving::Timeline& request : run.requests) {
    if (request.outcome == Outcome::failed) return request.reason;
    if (request.outcome == Outcome::refused) refusal = request.reason;
    answered = answered || request.outcome == Outcome::answered;
  }
  return answered ? "" : refusal;
}

}  // namespace

std::vector<Verdict> judge_serving(Transformer& model, const ServingTask& task, std::span<const JudgedMethod> methods) {
  const Method full;  // the base keeps everything
  const Served reference = serve_with(model, task, full, all_at_once(task.requests.size()));
  if (const std::string trouble = trouble_of(reference.run); !trouble.empty()) {
    throw UserError(fmt::format("full KV, which loads are measured by: {}", trouble));
  }
  const double capacity = capacity_of(reference.run);
  const double modelled_capacity =
      task.machine ? capacity_of(run_modelled(model, task, reference, all_at_once(task.requests.size()))) : 0;

  std::vector<Verdict> verdicts;
  for (const JudgedMethod& judged : methods) {
    Verdict& verdict = verdicts.emplace_back();
    store::SampleResult& result = verdict.result;
    double rate = 0;
    const Served served = serve_with(model, task, *judged.method, load_of(task, capacity, rate));
    verdict.failure = trouble_of(served.run);
    if (!verdict.failure.empty()) continue;
    describe_point(result, task, served);
    const Activity activity = total_activity(served);
    add_activity(result, activity);
    result.active = judged.reference || activity.acted();
    add_run(result, Clock::measured, task, served.run, rate, served.scores, reference.scores);
    if (!task.machine || judged.method->verifier() != nullptr || judged.method->looks_ahead()) continue;
    serving::Load load = load_of(task, modelled_capacity, rate);
    const ServingRun run = run_modelled(model, task, served, std::move(load));
    add_run(result, Clock::modelled, task, run, rate, served.scores, reference.scores);
  }
  return verdicts;
}

std::optional<serving::ServingMachine> serving_machine(const std::string& name, const std::filesystem::path& folder) {
  if (name.empty()) return std::nullopt;
  const throughput::Hardware hardware = throughput::read_hardware(throughput::find_description(name, folder));
  return serving::ServingMachine{.memory_bandwidth = hardware.memory_bytes_per_second() * hardware.efficiency.memory,
                                 .flops = hardware.flop_per_second() * hardware.efficiency.compute,
                                 .pass_seconds = hardware.efficiency.step_overhead_ms / kMilliseconds};
}

}  // namespace kvarena::judge
