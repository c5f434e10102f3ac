#include "metrics/distribution/acceptance.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {
namespace {

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  std::vector<RoundOutcome> outcomes;
  nlohmann::json per_round = nlohmann::json::array();
  std::vector<int64_t> output;
  for (const auto& round : row.at("rounds")) {
    outcomes.push_back(verify_round({round.at("draft").get<std::vector<int64_t>>(),  //
                                     round.at("verify").get<std::vector<int64_t>>()}));
    const RoundOutcome& outcome = outcomes.back();
    per_round.push_back({{"accepted_draft_tokens", outcome.accepted}, {"emitted", outcome.emitted}});
    output.insert(output.end(), outcome.emitted.begin(), outcome.emitted.end());
  }
  const AcceptanceSummary summary = summarize_rounds(outcomes);
  return {{"expected",
           {{"per_round", std::move(per_round)},
            {"acceptance_rate", summary.acceptance_rate()},
            {"mean_acceptance_length", summary.mean_acceptance_length()},
            {"mean_tokens_per_round", summary.mean_tokens_per_round()},
            {"output", std::move(output)}}}};
}

}  // namespace

RoundOutcome verify_round(const DraftRound& round) {
  KVARENA_ASSERT(round.verify.size() == round.draft.size() + 1,
                 fmt::format("draft [{}], verify [{}]", round.draft.size(), round.verify.size()));
  const auto mismatch = std::mismatch(round.draft.begin(), round.draft.end(), round.verify.begin());
  const int64_t accepted = mismatch.first - round.draft.begin();
  return {static_cast<int64_t>(round.draft.size()), accepted, {round.verify.begin(), mismatch.second + 1}};
}

AcceptanceSummary summarize_rounds(std::span<const RoundOutcome> rounds) {
  AcceptanceSummary summary;
  for (const RoundOutcome& round : rounds) {
    ++summary.rounds;
    summary.drafted += round.drafted;
    summary.accepted += round.accepted;
    summary.emitted += static_cast<int64_t>(round.emitted.size());
  }
  return summary;
}

KVARENA_METRIC({.id = "acceptance",
                .title = "Acceptance rate of drafts",
                .kind = MetricKind::distribution,
                .summary = "Drafted tokens the full cache confirms over drafted tokens, pooled over rounds; beside it "
                           "tokens accepted and emitted per round.",
                .source = "VeriCache, section 4.1",
                .stored = {kAcceptanceRate, kAcceptanceLength, kTokensPerVerify},
                .vectors = {{"acceptance", recompute}}});

}  // namespace kvarena::metrics
