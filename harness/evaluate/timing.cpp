#include "harness/evaluate/timing.h"

#include <chrono>
#include <numeric>

#include "harness/core/error.h"
#include "harness/engine/serving/batch_run.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/read_by_layers.h"
#include "harness/evaluate/describe.h"
#include "harness/evaluate/stored_values.h"
#include "metrics/statistics.h"

namespace kvarena::evaluate {
namespace {

constexpr double kMilliseconds = 1e3;
constexpr double kMebi = 1024.0 * 1024.0;
constexpr double kGiga = 1e9;

struct Repeat {
  double prefill_ms = 0;
  double observe_ms = 0;
  double compress_ms = 0;
  double first_token_ms = 0;
  std::vector<double> gaps_ms;  // between successive output tokens
  BatchRun run;

  [[nodiscard]] double end_to_end_ms() const { return std::accumulate(gaps_ms.begin(), gaps_ms.end(), first_token_ms); }
  [[nodiscard]] const SessionResult& first() const { return *run.sessions.front(); }
};

/// Whether the method's session reads the prompt itself.
bool reads_prompts(const Method& method) { return method.pruner() != nullptr || method.prompt_pass() > 0; }

/// Prefills the prompt for so many sessions of the method. A method that reuses entries finds them in `memory`, one
/// that prunes or attends in its own way reads the prompt itself: both get an unread prompt.
Prefill start_prompt(Transformer& model, const Request& request, const Method& method, int64_t sessions,
                     const std::shared_ptr<ReuseMemory>& memory) {
  if (outlives_full_cache(method)) {
    return read_for(model, request.prompt, method, sessions, request.facts, request.layout);
  }
  const bool reads = method.reuser() != nullptr || reads_prompts(method);
  Prefill prompt = reads ? unread_prompt(model, request.prompt, request.facts)
                         : prefill(model, request.prompt, method.asks(), kPrefillChunk, request.facts);
  prompt.layout = request.layout;
  prompt.memory = memory;
  return prompt;
}

/// Times one repeat. Tokens of one verification round arrive together: the round's time is shared among them.
Repeat run_once(Transformer& model, const Request& request, const EvaluatedMethod& evaluated,
                const BatchRunSettings& batch, const std::shared_ptr<ReuseMemory>& memory) {
  using Clock = std::chrono::steady_clock;
  const auto ms_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  Repeat repeat;
  const auto start = Clock::now();
  const Prefill prompt = start_prompt(model, request, *evaluated.method, batch.requests, memory);
  repeat.prefill_ms = prompt.seconds * kMilliseconds;
  repeat.observe_ms = prompt.observe_seconds * kMilliseconds;
  double waited_s = 0;  // since the first request's last token
  size_t seen = 1;
  repeat.run = run_batch(model, prompt, *evaluated.method, session_options(request), batch,
                         {.started = [&] { repeat.first_token_ms = ms_since(start); },
                          .passed =
                              [&](const SessionResult& first, double seconds) {
                                waited_s += seconds;
                                const size_t emitted = first.tokens.size() - seen;
                                if (emitted == 0) return;  // a drafting pass
                                const double each = waited_s * kMilliseconds / static_cast<double>(emitted);
                                repeat.gaps_ms.insert(repeat.gaps_ms.end(), emitted, each);
                                seen += emitted;
                                waited_s = 0;
                              }});
  const SessionResult& session = repeat.first();
  repeat.compress_ms = session.compress_seconds * kMilliseconds;
  if (session.reuse) repeat.prefill_ms = session.reuse->prefill_s * kMilliseconds;
  if (reads_prompts(*evaluated.method)) std::swap(repeat.prefill_ms, repeat.compress_ms);  // its prefill compresses
  for (const auto& each : repeat.run.sessions) {
    if (!each->failure.empty()) throw UserError(each->failure);
  }
  return repeat;
}

/// Peak cache bytes of all requests. Memory that a pass takes for itself while it runs counts once for each request
/// that runs at a time.
int64_t peak_bytes(const BatchRun& run) {
  int64_t most = 0;
  for (const auto& session : run.sessions) {
    most = std::max(most, std::max(session->peak_bytes, session->resident_bytes));
  }
  if (run.scheduled) return run.peak_bytes;
  return std::max(run.peak_bytes, std::max<int64_t>(run.peak_running, 1) * most);
}

/// Adds the values of requests in limited memory, and of a schedule, from the last repeat.
void add_batch(results::SampleResult& result, const BatchRun& run, results::Storage storage) {
  const auto add = [&](const metrics::StoredMetric& metric, const std::vector<double>& values) {
    add_repeats(result, metric, values, {.clock = results::Clock::measured, .storage = storage});
  };
  add(metrics::kConcurrentRequests, {static_cast<double>(run.peak_running)});
  int64_t tokens = -std::ssize(run.sessions);  // the first of each came before
  for (const auto& session : run.sessions) tokens += std::ssize(session->tokens);
  const auto passes = static_cast<double>(run.passes.size());
  add(metrics::kTokensPerPass, {static_cast<double>(tokens) / passes});
  add(metrics::kMeanPassMs, {run.seconds * kMilliseconds / passes});
  if (!run.scheduled) return;
  double verifying = 0;
  std::vector<double> milliseconds, bytes;
  for (const cost_model::ScheduledIteration& pass : run.passes) {
    if (pass.verifying > 0) verifying += pass.seconds;
    milliseconds.push_back(pass.seconds * kMilliseconds);
    bytes.push_back(pass.memory_bytes);
  }
  add(metrics::kLinkUtilisation, {run.link_busy_seconds / run.seconds});
  add(metrics::kLinkRate, {run.link_bytes_per_s / kGiga});
  add(metrics::kVerifyShare, {verifying / run.seconds});
  add(metrics::kLateVerifies, {static_cast<double>(run.late_verifies)});
  add(metrics::kFullCachesKept, {static_cast<double>(run.peak_pinned)});
  add(metrics::kFallenBack, {static_cast<double>(run.fallen_back)});
  add(metrics::kIterationMs, milliseconds);
  add(metrics::kIterationBytes, bytes);
}

}  // namespace

experiment::SampleOutcome evaluate_timing(Transformer& model, const Request& request, const EvaluatedMethod& evaluated,
                                          const experiment::TimingSettings& settings) {
  const auto memory = reuse_memory(request);
  if (const Reuser* reuser = evaluated.method->reuser()) {
    prime(model, request.prompt, request.layout, *reuser, *memory);  // by earlier requests, not by this one
  }
  BatchRunSettings batch{.requests = settings.batch};
  if (settings.device_mib) batch.device_bytes = static_cast<int64_t>(*settings.device_mib * kMebi);
  for (int64_t i = 0; i < settings.warmup; ++i) (void)run_once(model, request, evaluated, batch, memory);

  std::vector<double> prefill_ms;
  std::vector<double> observe_ms;
  std::vector<double> compress_ms;
  std::vector<double> overhead;
  std::vector<double> load_ms;
  std::vector<double> score_ms;
  std::vector<double> align_ms;
  std::vector<double> scoring;  // over the prefill
  std::vector<double> first_token_ms;
  std::vector<double> end_to_end_ms;
  std::vector<double> gap_ms;
  std::vector<double> throughput;
  Repeat repeat;
  for (int64_t i = 0; i < settings.repeats; ++i) {
    repeat = run_once(model, request, evaluated, batch, memory);
    if (const auto& reuse = repeat.first().reuse) {
      load_ms.push_back(reuse->load_s * kMilliseconds);
      score_ms.push_back(reuse->score_s * kMilliseconds);
      align_ms.push_back(reuse->align_s * kMilliseconds);
      if (repeat.prefill_ms > 0) scoring.push_back((score_ms.back() + align_ms.back()) / repeat.prefill_ms);
    }
    prefill_ms.push_back(repeat.prefill_ms);
    compress_ms.push_back(repeat.compress_ms);
    if (evaluated.method->reuser() == nullptr && !reads_prompts(*evaluated.method)) {
      observe_ms.push_back(repeat.observe_ms);
      overhead.push_back((repeat.observe_ms + repeat.compress_ms) / (repeat.prefill_ms - repeat.observe_ms));
    }
    first_token_ms.push_back(repeat.first_token_ms);
    end_to_end_ms.push_back(repeat.end_to_end_ms());
    if (repeat.gaps_ms.empty()) continue;  // the answer was a single token
    gap_ms.push_back(metrics::percentile(repeat.gaps_ms, 50));
    throughput.push_back(static_cast<double>(repeat.gaps_ms.size()) * static_cast<double>(settings.batch) /
                         repeat.run.seconds);
  }

  const SessionResult& session = repeat.first();
  experiment::SampleOutcome outcome;
  results::SampleResult& result = outcome.result;
  describe_answer(result, request, session);
  result.active = evaluated.reference || session.activity.acted();
  result.peak_bytes["device"] = peak_bytes(repeat.run);
  if (session.peak_host_bytes > 0) result.peak_bytes["host"] = settings.batch * session.peak_host_bytes;
  if (session.peak_disk_bytes > 0) result.peak_bytes["disk"] = settings.batch * session.peak_disk_bytes;
  add_traffic(result, session, request);
  const results::Storage storage = storage_of(session, request);
  const Origin real{.clock = results::Clock::measured};
  const Origin measured{.clock = results::Clock::measured, .storage = storage};
  add_repeats(result, metrics::kPrefillMs, prefill_ms, real);
  add_repeats(result, metrics::kObserveMs, observe_ms, real);
  add_repeats(result, metrics::kCompressMs, compress_ms, measured);
  add_repeats(result, metrics::kCompressionOverhead, overhead, measured);
  add_repeats(result, metrics::kLoadMs, load_ms, measured);
  add_repeats(result, metrics::kScoreMs, score_ms, measured);
  add_repeats(result, metrics::kAlignMs, align_ms, measured);
  add_repeats(result, metrics::kScoringOverhead, scoring, measured);
  add_repeats(result, metrics::kTimeToFirstTokenMs, first_token_ms, measured);
  add_repeats(result, metrics::kEndToEndMs, end_to_end_ms, measured);
  add_repeats(result, metrics::kInterTokenLatencyMs, gap_ms, measured);
  add_repeats(result, metrics::kThroughputTokensPerS, throughput, measured);
  add(result, metrics::kBatchRequests, static_cast<double>(settings.batch));
  if (settings.device_mib) add_batch(result, repeat.run, storage);
  return outcome;
}

}  // namespace kvarena::evaluate
