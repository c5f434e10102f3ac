#include "harness/evaluate/audit.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "harness/core/files.h"
#include "metrics/statistics.h"

namespace kvarena::evaluate {
namespace {

constexpr double kFloorPercentile = 99;

void run_alone(Transformer& model, Session& session) {
  Session* const one[] = {&session};
  run_together(model, one);
}

std::array<int32_t, 2> two_best(std::span<const float> row) {
  std::array<int32_t, 2> best = {0, 0};
  for (size_t id = 1; id < row.size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    if (row[id] > row[best[0]]) {
      best = {token, best[0]};
    } else if (best[1] == best[0] || row[id] > row[best[1]]) {
      best[1] = token;
    }
  }
  return best;
}

double gap_of(std::span<const float> row, const std::array<int32_t, 2>& best) {
  return static_cast<double>(row[best[0]]) - static_cast<double>(row[best[1]]);
}

}  // namespace

AnswerTrace trace_answer(Transformer& model, const Prefill& prompt, const Method& method, SessionOptions options) {
  AnswerTrace trace;
  options.on_logits = [&](int64_t /*step*/, std::span<const float> row) {
    trace.best.push_back(two_best(row));
    trace.gaps.push_back(gap_of(row, trace.best.back()));
    trace.digests.push_back(sha256(std::string_view(reinterpret_cast<const char*>(row.data()), row.size_bytes())));
  };
  const auto session = start_session(model, prompt, method, std::move(options));
  run_alone(model, *session);
  trace.tokens = session->tokens;
  return trace;
}

std::vector<double> gap_shifts(Transformer& model, const Prefill& prompt, const Method& method,
                               const AnswerTrace& answer) {
  std::vector<double> shifts;
  SessionOptions options;
  options.forced = answer.tokens;
  options.on_logits = [&](int64_t step, std::span<const float> row) {
    const auto at = static_cast<size_t>(step);
    shifts.push_back(std::fabs(gap_of(row, answer.best[at]) - answer.gaps[at]));
  };
  const auto session = start_session(model, prompt, method, std::move(options));
  run_alone(model, *session);
  return shifts;
}

Divergence first_difference(const AnswerTrace& reference, const AnswerTrace& other) {
  const auto& a = reference.tokens;
  const auto& b = other.tokens;
  const auto step = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  Divergence found;
  const auto common = static_cast<int64_t>(std::min(reference.digests.size(), other.digests.size()));
  if (step < static_cast<int64_t>(std::max(a.size(), b.size()))) {
    found.step = step;
    if (step < static_cast<int64_t>(reference.gaps.size())) found.gap = reference.gaps[step];
  }
  const int64_t compared = std::min(common, step + 1);
  found.same_bits = std::equal(reference.digests.begin(), reference.digests.begin() + compared, other.digests.begin());
  return found;
}

double noise_floor(std::span<const std::vector<double>> shifts) {
  std::vector<double> all;
  for (const std::vector<double>& one : shifts) all.insert(all.end(), one.begin(), one.end());
  return all.empty() ? 0 : metrics::percentile(all, kFloorPercentile);
}

}  // namespace kvarena::evaluate
