#include "harness/model/feed_forward.h"

#include <algorithm>
#include <cmath>

#include "harness/model/products.h"

namespace kvarena {
namespace {

/// The rows that visit one expert.
struct Visits {
  std::vector<int64_t> rows;
  std::vector<float> weights;
};

std::vector<Visits> route(const SparseFeedForward& weights, const ExpertConfig& config, const float* in, int64_t rows,
                          Activations& a) {
  float* logits = a.scores.at_least(rows * config.experts);
  project(weights.router, in, rows, a.hidden, logits);
  std::vector<Visits> visits(static_cast<size_t>(config.experts));
  for (int64_t r = 0; r < rows; ++r) {
    const std::span<const float> row(logits + r * config.experts, static_cast<size_t>(config.experts));
    for (const ChosenExpert& chosen : choose_experts(config, row, weights.correction)) {
      visits[chosen.expert].rows.push_back(r);
      visits[chosen.expert].weights.push_back(chosen.weight);
    }
  }
  return visits;
}

void visit(const DenseFeedForward& expert, const Visits& visits, bool weighted_inputs, const float* in, float* out,
           Activations& a) {
  const auto count = static_cast<int64_t>(visits.rows.size());
  if (count == 0) return;
  float* gathered = a.gathered.at_least(count * a.hidden);
  float* answers = a.expert_output.at_least(count * a.hidden);
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(in + visits.rows[i] * a.hidden, a.hidden, gathered + i * a.hidden);
    if (weighted_inputs) kernels::scale_rows(gathered + i * a.hidden, 1, a.hidden, a.hidden, visits.weights[i]);
  }
  feed_forward(expert, gathered, count, answers, a);
  for (int64_t i = 0; i < count; ++i) {
    const float* answer = answers + i * a.hidden;
    float* to = out + visits.rows[i] * a.hidden;
    const float weight = weighted_inputs ? 1.0F : visits.weights[i];
    for (int64_t c = 0; c < a.hidden; ++c) to[c] += weight * answer[c];
  }
}

}  // namespace

void feed_forward(const SparseFeedForward& weights, const ExpertConfig& config, const float* in, int64_t rows,
                  float* out, Activations& a) {
  const std::vector<Visits> visits = route(weights, config, in, rows, a);
  std::fill_n(out, rows * a.hidden, 0.0F);
  for (int64_t expert = 0; expert < config.experts; ++expert)
    visit(weights.experts[expert], visits[expert], config.weighted_inputs, in, out, a);
  if (!weights.shared) return;
  float* shared = a.expert_output.at_least(rows * a.hidden);
  feed_forward(*weights.shared, in, rows, shared, a);
  if (weights.shared_gate) {
    float* gates = a.scores.at_least(rows);
    project(*weights.shared_gate, in, rows, a.hidden, gates);
    for (int64_t r = 0; r < rows; ++r) {
      kernels::scale_rows(shared + r * a.hidden, 1, a.hidden, a.hidden, 1 / (1 + std::exp(-gates[r])));
    }
  }
  kernels::add_into(out, shared, rows * a.hidden);
}

}  // namespace kvarena
