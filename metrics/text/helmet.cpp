#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/algorithms/regex.h"
#include "metrics/registry.h"
#include "metrics/text/qa_f1.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

/// F1 of the words; 0 where one of the two is yes, no or noanswer and the other is not.
double f1(const std::string& said, const std::string& wanted) {
  const auto closed = [](const std::string& text) { return text == "yes" || text == "no" || text == "noanswer"; };
  if ((closed(said) || closed(wanted)) && said != wanted) return 0;
  return bag_f1(split_white_space(said), split_white_space(wanted)).f;
}

/// Text behind the first `prefix` on its line, in any case; the first line where there is none.
std::string parsed(const std::string& output, const std::string& prefix) {
  const Regex behind("(?i:" + prefix + ")(.*)"), again("^(?i:" + prefix + ")");
  const RegexMatch match = behind.search(output);
  const std::string_view line = match.empty() ? std::string_view(output).substr(0, output.find('\n')) : match[1];
  return std::string(strip(again.sub(strip(line), [](const RegexMatch&) { return std::string(); })));
}

struct Agreement {
  double exact = 0, f1 = 0, substring = 0;
};

/// Best over the references, and over what is already in `best`, value by value.
void compare(std::string_view prediction, const MetricInput& input, Agreement& best) {
  const std::string said = normalized_text(prediction);
  for (const std::string& reference : input.references) {
    const std::string wanted = normalized_text(reference);
    best.exact = std::max(best.exact, said == wanted ? 1.0 : 0.0);
    best.f1 = std::max(best.f1, f1(said, wanted));
    best.substring = std::max(best.substring, contains(said, wanted) ? 1.0 : 0.0);
  }
}

/// The output as the official code has it begins with what the prompt ends with.
MetricScore question(const MetricInput& input) {
  const std::string output = "Answer:" + std::string(input.prediction);
  Agreement best;
  compare(output, input, best);
  compare(parsed(output, "Answer:"), input, best);
  return {best.substring, {{"exact_match", best.exact}, {"f1", best.f1}}, {}};
}

MetricScore label(const MetricInput& input) {
  Agreement best;
  const std::string said = parsed("label:" + std::string(input.prediction), "label:");
  compare(said, input, best);
  return {best.exact, {{"f1", best.f1}, {"substring_exact_match", best.substring}}, {{"answer", said}}};
}

/// Ids in the order of the longest chain of numbers with > between them, each once.
std::vector<std::string> ranked(std::string_view output) {
  static const Regex kMarks(R"([\[\]:])"), kChain(R"((\d+)(?:\s*>\s*(\d+))*)");
  const auto nothing = [](const RegexMatch&) { return std::string(); };
  const std::string text = replace_all(lower(kMarks.sub(output, nothing)), "id", "");
  std::string_view longest;
  for (const RegexMatch& match : kChain.find_all(text)) {
    if (decode_utf8(match[0]).size() > decode_utf8(longest).size()) longest = match[0];
  }
  if (longest.empty()) return {text};
  std::vector<std::string> ids;
  for (const std::string& piece : split_on(longest, ">")) {
    const std::string id(strip(piece));
    if (!id.empty() && std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

constexpr size_t kCutOff = 10;

double discounted(const std::vector<int64_t>& gains) {
  double sum = 0;
  for (size_t i = 0; i < std::min(gains.size(), kCutOff); ++i) {
    if (gains[i] > 0) sum += static_cast<double>(gains[i]) / std::log2(static_cast<double>(i + 2));
  }
  return sum;
}

/// NDCG@10 of trec_eval: gains are the relevances themselves.
MetricScore ranking(const MetricInput& input) {
  if (!input.extras.contains("relevance")) {
    fail({.place = "metric \"helmet\": extras.relevance", .found = "nothing", .expected = "relevances by id"});
  }
  const auto relevance = input.extras["relevance"].get<std::map<std::string, int64_t>>();
  std::vector<int64_t> best, found;
  for (const auto& [id, gain] : relevance) best.push_back(gain);
  std::ranges::sort(best, std::greater());
  const std::vector<std::string> ids = ranked("Ranking:" + std::string(input.prediction));
  for (const std::string& id : ids) found.push_back(relevance.contains(id) ? relevance.at(id) : 0);
  const double ideal = discounted(best);
  const double ndcg = ideal > 0 ? discounted(found) / ideal : 0;
  return {python_round(ndcg, 5), {{"ranked", static_cast<double>(ids.size())}}, {}};
}

MetricScore score(const MetricInput& input) {
  const std::map<std::string, ScoreFunction> scores = {{"qa", question}, {"icl", label}, {"rerank", ranking}};
  const std::string task = input.extras.value("task", "");
  if (!scores.contains(task)) {
    fail({.place = "metric \"helmet\": extras.task", .found = task, .expected = "qa, icl or rerank"});
  }
  return scores.at(task)(input);
}

}  // namespace

KVARENA_METRIC(
    {.id = "helmet",
     .title = "HELMET",
     .summary =
         "By extras.task: of qa whether a reference is in the answer (substring exact match), both normalised as for "
         "qa_f1; of icl whether the answer's first line is the label; of rerank NDCG@10 of the ids that it lists "
         "(extras.relevance). Answers are taken from behind what the prompt ends with, as without a chat template.",
     .source = "princeton-nlp/HELMET @4526dfb utils.py, data.py; pytrec_eval",
     .score = score});

}  // namespace kvarena::metrics
