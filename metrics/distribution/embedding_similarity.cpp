#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/distribution/embedding.h"
#include "metrics/registry.h"
#include "metrics/text_embedder.h"

namespace kvarena::metrics {
namespace {

template <typename T>
double cosine(std::span<const T> a, std::span<const T> b) {
  KVARENA_ASSERT(a.size() == b.size(), fmt::format("a [{}], b [{}]", a.size(), b.size()));
  double dot = 0;
  double a_squares = 0;
  double b_squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]);
    const auto y = static_cast<double>(b[i]);
    dot += x * y;
    a_squares += x * x;
    b_squares += y * y;
  }
  return a_squares == 0 || b_squares == 0 ? 0.0 : dot / (std::sqrt(a_squares) * std::sqrt(b_squares));
}

template <typename T>
std::vector<double> pool(std::span<const T> states, std::span<const int64_t> mask, int64_t hidden_size) {
  const auto width = static_cast<size_t>(hidden_size);
  KVARENA_ASSERT(states.size() == mask.size() * width,
                 fmt::format("states [{}], mask [{}], hidden_size {}", states.size(), mask.size(), hidden_size));
  std::vector<double> mean(width);
  double tokens = 0;
  for (size_t t = 0; t < mask.size(); ++t) {
    if (mask[t] == 0) continue;
    ++tokens;
    for (size_t d = 0; d < width; ++d) mean[d] += static_cast<double>(states[t * width + d]);
  }
  for (double& m : mean) m /= std::max(tokens, 1e-9);
  return mean;
}

// The best over the references, which in a run are one: the answer under the full cache.
MetricScore score(const MetricInput& input) {
  const TextEmbedder& embedder = text_embedder();
  const std::vector<float> ours = embedder.embed(input.prediction);
  MetricScore result;
  double best = -1;
  bool cut = embedder.cuts(input.prediction);
  for (const std::string& reference : input.references) {
    best = std::max(best, cosine_similarity(ours, embedder.embed(reference)));
    cut = cut || embedder.cuts(reference);
  }
  result.score = std::clamp(best, 0.0, 1.0);
  result.values = {{"cosine", best}, {"cut", cut ? 1.0 : 0.0}};
  return result;
}

nlohmann::json recompute_cosine(const nlohmann::json& row, const VectorContext&) {
  const auto a = row.at("embedding_a").get<std::vector<double>>();
  const auto b = row.at("embedding_b").get<std::vector<double>>();
  return {{"expected", cosine_similarity(a, b)}};
}

nlohmann::json recompute_pooling(const nlohmann::json& row, const VectorContext&) {
  std::vector<double> states;
  for (const auto& state : row.at("hidden_states")) {
    const auto values = state.get<std::vector<double>>();
    states.insert(states.end(), values.begin(), values.end());
  }
  const auto mask = row.at("attention_mask").get<std::vector<int64_t>>();
  const auto hidden_size = mask.empty() ? 0 : static_cast<int64_t>(states.size() / mask.size());
  const auto mean = mean_pooling(states, mask, hidden_size);
  return {{"expected_mean", mean}, {"expected_normalized", l2_normalized(mean)}};
}

}  // namespace

double cosine_similarity(std::span<const double> a, std::span<const double> b) { return cosine(a, b); }
double cosine_similarity(std::span<const float> a, std::span<const float> b) { return cosine(a, b); }

std::vector<double> mean_pooling(std::span<const double> states, std::span<const int64_t> mask, int64_t hidden_size) {
  return pool(states, mask, hidden_size);
}
std::vector<double> mean_pooling(std::span<const float> states, std::span<const int64_t> mask, int64_t hidden_size) {
  return pool(states, mask, hidden_size);
}

std::vector<double> l2_normalized(std::vector<double> v) {
  double squares = 0;
  for (const double x : v) squares += x * x;
  const double norm = std::max(std::sqrt(squares), 1e-12);
  for (double& x : v) x /= norm;
  return v;
}

KVARENA_METRIC(
    {.id = "embedding_similarity",
     .title = "Embedding similarity to the full-cache answer",
     .summary = "Cosine of the mean-pooled MiniLM-L6-v2 embeddings of two answers, the second under the full "
                "cache; below zero counts as 0. Answers are read up to 256 word pieces: values.cut is 1 where one is "
                "longer.",
     .source = "EvicPress; sentence-transformers/all-MiniLM-L6-v2",
     .score = score,
     .data = text_embedder_files,
     .against_full_cache = true,
     .vectors = {{"cosine_similarity", recompute_cosine}, {"mean_pooling", recompute_pooling}}});

}  // namespace kvarena::metrics
