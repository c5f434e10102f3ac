#include "harness/cli/parity_run.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>

#include "harness/cli/inspection.h"
#include "harness/core/failure.h"
#include "harness/evaluate/foreign_quality.h"
#include "harness/method/registry.h"
#include "metrics/distribution/divergence.h"
#include "metrics/registry.h"

namespace kvarena::cli {
namespace {

using evaluate::Request;
using nlohmann::json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// One prompt under one method in one engine.
struct Side {
  std::vector<std::vector<std::vector<int32_t>>> kept;  // positions, [layers][kv_heads], ascending
  std::vector<std::vector<float>> logits;               // along our full KV's answer
  std::vector<int32_t> tokens;                          // of the free answer
  double score = kNone;
  double seconds = kNone;
};

LogitsSink into(std::vector<std::vector<float>>& rows) {
  return [&rows](int64_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); };
}

double score_of(const Request& request, std::span<const int32_t> answer) {
  const json extras = json::parse(request.sample->extras);
  const metrics::MetricEntry& metric = metrics::find_metric(request.metrics.front());
  return metrics::score_sample(metric, {answer_text(request, answer), request.sample->references, extras}).score;
}

/// Runs the method here. `along`: tokens whose logits are wanted; empty: those of the free answer.
Side ours(Transformer& model, const Request& request, const json& spec, std::vector<int32_t> along) {
  const auto method = make_method(spec, "method");
  Side side;
  const auto begin = std::chrono::steady_clock::now();
  Prefill prompt = prefill(model, request.prompt, method->needs(), kPrefillChunk, request.facts);
  prompt.layout = request.layout;
  const auto answer = [&](SessionOptions options) {
    const auto session = start_session(model, prompt, *method, std::move(options));
    Session* const one[] = {session.get()};
    run_together(model, one);
    if (!session->failure.empty()) throw std::runtime_error(session->failure);
    return session->tokens;
  };
  side.tokens = answer(session_options(request));
  side.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  side.score = score_of(request, side.tokens);
  SessionOptions forced = session_options(request);
  forced.forced = along.empty() ? side.tokens : std::move(along);
  forced.on_logits = into(side.logits);
  (void)answer(std::move(forced));
  for (LayerInfo& layer : inspect(model, prompt, *method, 0).layers) side.kept.push_back(std::move(layer.positions));
  return side;
}

Side theirs(TransformersEngine& engine, const Request& request, json spec, std::vector<int32_t> along) {
  Side side;
  evaluate::ForeignAnswer answer;
  evaluate::ForeignRun run{
      .on_logits = {}, .forced = std::move(along), .on_forced_logits = into(side.logits), .wants_all = {}};
  answer_elsewhere(engine, request, {.prompt = {}, .question = {}, .method = std::move(spec), .kept = true},
                   std::move(run), answer);
  side.tokens = answer.session.tokens;
  side.seconds = answer.outcome.read_seconds + answer.outcome.decode_seconds;
  side.score = score_of(request, side.tokens);
  side.kept = std::move(answer.outcome.kept);
  return side;
}

double mean_kl(const std::vector<std::vector<float>>& from, const std::vector<std::vector<float>>& to) {
  double sum = 0;
  for (size_t step = 0; step < from.size(); ++step) {
    sum += metrics::kl_nats(std::span<const float>(from[step]), std::span<const float>(to[step]));
  }
  return sum / static_cast<double>(from.size());
}

double kept_alike(const Side& a, const Side& b) {
  double sum = 0;
  double heads = 0;
  for (size_t layer = 0; layer < a.kept.size(); ++layer) {
    for (size_t head = 0; head < a.kept[layer].size(); ++head) {
      const std::vector<int32_t>& own = a.kept[layer][head];
      const std::vector<int32_t>& other = b.kept[layer][head];
      std::vector<int32_t> both;
      std::ranges::set_intersection(own, other, std::back_inserter(both));
      sum += static_cast<double>(both.size()) / static_cast<double>(std::max(own.size(), other.size()));
      ++heads;
    }
  }
  return sum / heads;
}

/// Both sides of a pair on one prompt; a side that is not there has NaN for numbers.
struct Both {
  Side own, other;
  std::string failure[2];
};

Both measure(const ParityRun& run, const Request& request, const ParityPair& pair, const std::vector<int32_t>& along) {
  Both both;
  if (!pair.method.is_null()) {
    both.failure[0] = failure_of([&] { both.own = ours(run.model.transformer(), request, pair.method, along); });
  }
  both.failure[1] = failure_of([&] { both.other = theirs(run.engine, request, pair.press, along); });
  return both;
}

void add(double& mean, double value, size_t prompts) { mean += value / static_cast<double>(prompts); }

void add_prompt(ParityRow& row, const Both& both, const Both& full, size_t prompts) {
  const bool whole = !both.own.logits.empty() && !both.other.logits.empty();
  add(row.kept_alike, whole ? kept_alike(both.own, both.other) : kNone, prompts);
  add(row.between_nats, whole ? mean_kl(both.own.logits, both.other.logits) : kNone, prompts);
  const auto add_side = [&](int side, const Side& under, const Side& reference) {
    add(row.loss_nats[side], under.logits.empty() ? kNone : mean_kl(reference.logits, under.logits), prompts);
    add(row.score[side], under.score, prompts);
    add(row.seconds[side], under.seconds, prompts);
    if (row.failure[side].empty()) row.failure[side] = both.failure[side];
  };
  add_side(0, both.own, full.own);
  add_side(1, both.other, full.other);
}

}  // namespace

std::vector<ParityRow> run_parity(const ParityRun& run) {
  std::vector<ParityRow> rows(run.pairs.size());
  for (const Request& request : run.requests) {
    Both full;
    full.own = ours(run.model.transformer(), request, run.pairs.front().method, {});
    full.other = theirs(run.engine, request, nullptr, full.own.tokens);
    for (size_t i = 0; i < run.pairs.size(); ++i) {
      const ParityPair& pair = run.pairs[i];
      run.on_pair(pair);
      add_prompt(rows[i], i == 0 ? full : measure(run, request, pair, full.own.tokens), full, run.requests.size());
    }
  }
  return rows;
}

}  // namespace kvarena::cli
