#include <nlohmann/json.hpp>

#include "metrics/algorithms/patches.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

struct Verdict {
  std::string extracted;
  UnidiffReport unidiff;
  NumstatReport numstat;
  [[nodiscard]] bool valid() const {
    return unidiff.parses && (unidiff.hunks > 0 || unidiff.renames > 0) && numstat.exit_code == 0;
  }
};

Verdict judge(std::string_view response) {
  Verdict verdict{extract_diff(response), {}, {}};
  verdict.unidiff = parse_unidiff(verdict.extracted);
  verdict.numstat = git_numstat(verdict.extracted);
  return verdict;
}

MetricScore git_diff_format(const MetricInput& input) {
  const Verdict verdict = judge(input.prediction);
  MetricScore score;
  score.score = verdict.valid();
  score.values = {{"unidiff_parses", verdict.unidiff.parses},
                  {"files", static_cast<double>(verdict.unidiff.files)},
                  {"hunks", static_cast<double>(verdict.unidiff.hunks)},
                  {"git_accepts", verdict.numstat.exit_code == 0}};
  return score;
}

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const Verdict v = judge(row.at("response").get_ref<const std::string&>());
  return {{"expected",
           {{"extracted", v.extracted},
            {"unidiff",
             {{"parses", v.unidiff.parses},
              {"files", v.unidiff.files},
              {"hunks", v.unidiff.hunks},
              {"added", v.unidiff.added},
              {"removed", v.unidiff.removed}}},
            {"git_apply_numstat_exit", v.numstat.exit_code},
            {"git_apply_numstat_stdout", v.numstat.output},
            {"minimal_patch", extract_minimal_patch(v.extracted)},
            {"valid", v.valid()}}}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "git_diff_format",
     .title = "Git-diff format accuracy",
     .kind = MetricKind::functional,
     .version = 2,
     .summary = "1 when the patch in the answer parses with a hunk or a rename and right line counts (unidiff's "
                "rules) and `git apply --numstat` would accept it. Whether it applies to a repository is not "
                "asked.",
     .source = "VeriCache Figure 3 (checker not published); SWE-bench extract_diff, unidiff 0.7.3, git apply",
     .score = git_diff_format,
     .needs_references = false,
     .vectors = {{"git_diff_format", recompute}}});

}  // namespace kvarena::metrics
