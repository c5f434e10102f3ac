#include "harness/experiment/expected_use.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/progress.h"
#include "harness/experiment/method_batch.h"

namespace kvarena::experiment {
namespace {

using results::CellKind;

/// Share of the memory's rate that a step of decoding reaches, with sampling, scoring and storing counted in.
constexpr double kReachedShare = 0.6;

int64_t largest_batch(const ExperimentConfig& config, const CellGroup& group) {
  int64_t most = 1;
  for (const ComponentEntry& method : config.methods)
    most = std::max(most, timed_batch(config, method, group.workload->label, group.model->label));
  return most;
}

/// Requests whose caches are held at the same time; a prompt's cache is kept beside its methods'.
double requests_at_work(const ExperimentConfig& config, const CellGroup& group) {
  switch (group.kind) {
    case CellKind::quality: return static_cast<double>(group.cells.size()) + 1;
    case CellKind::noise_floor: return 2;
    case CellKind::timing: return static_cast<double>(largest_batch(config, group)) + 1;
    case CellKind::serving: return static_cast<double>(std::min(group.requests, config.serving->max_running)) + 1;
  }
  return 1;
}

}  // namespace

double expected_cost(const ExperimentConfig& config, const CellGroup& group, const WorkloadSamples& samples,
                     const ModelSize& size) {
  constexpr double kTokensOfAStep = 8;
  constexpr double kCompression = 0.15;  // of a prefill: a method's own work on the prompt
  const double cells = static_cast<double>(group.cells.size());
  const double prefill = samples.prompt_tokens / kTokensOfAStep;
  const double answer = 1 + samples.answer_tokens;
  const double cached = samples.prompt_tokens + answer / 2;
  const double reads_cache = size.weight_bytes > 0 ? cached * size.entry_bytes / size.weight_bytes : 0;
  const double alone = prefill + answer * (1 + reads_cache);
  switch (group.kind) {
    case CellKind::quality:
      return prefill * (1 / cells + kCompression) + answer * (std::max(1 / cells, 1 / kTokensOfAStep) + reads_cache);
    case CellKind::noise_floor: return alone;
    case CellKind::timing: return static_cast<double>(config.timing->warmup + config.timing->repeats) * alone;
    case CellKind::serving: return static_cast<double>(group.requests) * alone;
  }
  return 1;
}

double expected_bytes(const ExperimentConfig& config, const CellGroup& group, const WorkloadSamples& samples,
                      const ModelSize& size) {
  const double tokens = samples.most_prompt_tokens + samples.answer_tokens;
  return size.weight_bytes + requests_at_work(config, group) * tokens * size.entry_bytes;
}

std::string expected_use(const Plan& plan, const results::ResultsReader* done, double read_bytes_per_s) {
  double seconds = 0;
  double bytes = 0;
  for (const CellGroup& group : plan.groups) {
    if (group.model->device != "cpu") return "";
    const double step = group.weight_bytes / (read_bytes_per_s * kReachedShare);
    for (const PlannedCell& cell : group.cells) {
      const int64_t left = cell.missing.empty() ? samples_left(group, cell, done) : 0;
      if (left == 0) continue;
      seconds += static_cast<double>(left) * group.cost * step;
      bytes = std::max(bytes, group.bytes);
    }
  }
  if (seconds <= 0) return "";
  return fmt::format("about {} and {:.1f} GiB on this machine", duration_text(seconds), bytes / (1 << 30));
}

}  // namespace kvarena::experiment
