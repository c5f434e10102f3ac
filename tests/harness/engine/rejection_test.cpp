// Rejection sampling through whole sessions: what is emitted has the target's distribution, whoever drafts.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::tiny_model;
using testing::tiny_prompt;

/// Chi-squared distance of counts from expectations; cells expected below 5 are joined.
struct ChiSquared {
  double value = 0;
  int64_t degrees = -1;
};
ChiSquared chi_squared(const std::map<std::vector<int32_t>, double>& expected,
                       const std::map<std::vector<int32_t>, int64_t>& counts, int64_t samples) {
  ChiSquared result;
  double rare_expected = 0, rare_seen = static_cast<double>(samples);
  for (const auto& [key, probability] : expected) {
    const double mean = probability * static_cast<double>(samples);
    if (mean < 5) continue;
    const auto found = counts.find(key);
    const double seen = found == counts.end() ? 0.0 : static_cast<double>(found->second);
    result.value += (seen - mean) * (seen - mean) / mean;
    rare_expected += mean;
    rare_seen -= seen;
    ++result.degrees;
  }
  rare_expected = static_cast<double>(samples) - rare_expected;
  if (rare_expected >= 5) {
    result.value += (rare_seen - rare_expected) * (rare_seen - rare_expected) / rare_expected;
    ++result.degrees;
  }
  return result;
}

/// The value that a chi-squared variable exceeds once in a hundred thousand (Wilson and Hilferty 1931).
double rare_chi_squared(int64_t degrees) {
  const double k = static_cast<double>(degrees), z = 4.265;
  const double root = 1 - 2 / (9 * k) + z * std::sqrt(2 / (9 * k));
  return k * root * root * root;
}

TEST(Rejection, SamplesHaveTheTargetsDistribution) {
  Transformer model = tiny_model();
  const std::string other =
      (std::filesystem::temp_directory_path() / ("kvarena-rejection-" + std::to_string(::getpid()))).string();
  testing::write_tiny_model(other, 2);

  // Continuations of 3 tokens at temperature 0.8, top-k 8: at most 512, each with its exact probability.
  const Prefill prompt = prefill(model, tiny_prompt(16), {.window = 2});
  SessionOptions options{.stop = {.max_new_tokens = 3}, .sampling = {.temperature = 0.8, .top_k = 8}};

  std::map<std::vector<int32_t>, double> expected;
  const std::function<void(std::vector<int32_t>, double)> walk = [&](std::vector<int32_t> path, double probability) {
    std::vector<int32_t> tokens = prompt.tokens;
    tokens.insert(tokens.end(), path.begin(), path.end());
    const Prefill here = prefill(model, tokens, {});
    const std::vector<double> p = sampling_distribution(here.logits, options.sampling);
    for (size_t token = 0; token < p.size(); ++token) {
      if (p[token] == 0) continue;
      std::vector<int32_t> longer = path;
      longer.push_back(static_cast<int32_t>(token));
      if (longer.size() == 3) {
        expected[longer] = probability * p[token];
      } else {
        walk(longer, probability * p[token]);
      }
    }
  };
  walk({}, 1);

  const std::vector<std::pair<json, int64_t>> specs = {
      {{{"name", "vericache"},
        {"drafter", {{"name", "snapkv"}, {"keep", 0.3}, {"window", 2}}},
        {"draft_sampling", "rejection"},
        {"draft_length", 2}},
       20000},
      {{{"name", "spec_decode"}, {"draft_model", other}, {"draft_sampling", "rejection"}, {"draft_length", 2}}, 4000},
      {{{"name", "vericache"},
        {"drafter", {{"name", "snapkv"}, {"keep", 0.3}, {"window", 2}}},
        {"aux", {{"name", "spec_decode"}, {"draft_model", other}, {"draft_length", 2}}},
        {"draft_sampling", "rejection"},
        {"draft_length", 2}},
       4000}};
  for (const auto& [spec, samples] : specs) {
    const auto method = make_method(spec, "test");
    std::map<std::vector<int32_t>, int64_t> counts;
    constexpr int64_t together = 100;
    int64_t drafted = 0, accepted = 0;
    for (int64_t first = 0; first < samples; first += together) {
      std::vector<std::unique_ptr<Session>> sessions;
      std::vector<Session*> running;
      for (int64_t seed = first; seed < first + together; ++seed) {
        options.sampling.seed = static_cast<uint64_t>(seed);
        sessions.push_back(start_session(model, prompt, *method, options));
        running.push_back(sessions.back().get());
      }
      run_together(model, running);
      for (const auto& session : sessions) {
        ++counts[session->tokens];
        drafted += session->activity.tokens_drafted;
        accepted += session->activity.tokens_accepted;
      }
    }
    const ChiSquared distance = chi_squared(expected, counts, samples);
    EXPECT_GT(distance.degrees, 10);
    EXPECT_LT(distance.value, rare_chi_squared(distance.degrees)) << spec << ", " << distance.degrees << " degrees";
    EXPECT_LT(accepted, drafted) << "nothing was ever rejected: the test shows nothing";
    EXPECT_GT(accepted, 0);
  }
  std::filesystem::remove_all(other);
}

}  // namespace
}  // namespace kvarena
