#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/algorithms/english_sentences.h"
#include "metrics/algorithms/regex.h"
#include "metrics/algorithms/rouge.h"
#include "metrics/registry.h"
#include "metrics/text/qa_f1.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

constexpr StoredMetric kHit{"alce_str_hit", "ASQA, every short answer in the text"},
    kRouge{"alce_rouge_lsum", "ASQA, ROUGE-Lsum"}, kPrecision{"alce_precision", "QAMPARI, precision"},
    kRecall{"alce_recall", "QAMPARI, recall"}, kF1{"alce_f1", "QAMPARI, F1"},
    kF1Top5{"alce_f1_top5", "QAMPARI, F1, of five"};

using Answers = std::vector<std::vector<std::string>>;  // forms of each

/// The answer in one line, without its citations.
std::string without_citations(std::string_view output) {
  static const Regex kLines("\n+"), kSpaced(R"( \[\d+)"), kCited(R"(\[\d+)");
  const auto nothing = [](const RegexMatch&) { return std::string(); };
  const std::string line = replace_all(kLines.sub(output, [](const RegexMatch&) { return " "; }), "<|im_end|>", "");
  return replace_all(replace_all(kCited.sub(kSpaced.sub(line, nothing), nothing), " |", ""), "]", "");
}

std::string in_sentences(std::string_view text) {
  const std::string small = lower(text);
  return fmt::format("{}", fmt::join(punkt().sentences(small), "\n"));
}

/// Share of the questions with an answer in the text.
MetricScore asqa(const std::string& output, const Answers& answers, const nlohmann::json& extras) {
  const std::string said = normalized_text(output);
  double found = 0;
  for (const std::vector<std::string>& forms : answers) {
    found += std::ranges::any_of(forms, [&](const std::string& form) { return contains(said, normalized_text(form)); })
                 ? 1
                 : 0;
  }
  double rouge = 0;
  for (const nlohmann::json& answer : extras.value("long_answers", nlohmann::json::array())) {
    const std::string wanted = in_sentences(answer.get<std::string>());
    rouge = std::max(rouge, google_rouge_lsum(in_sentences(output), wanted, /*stem=*/true).f);
  }
  const double share = found / static_cast<double>(answers.size());
  return {share, {{kHit.name, share == 1 ? 1.0 : 0.0}, {kRouge.name, rouge}}, {}};
}

/// Recall of a list, of which five answers are enough.
MetricScore qampari(std::string_view output, const Answers& answers) {
  const auto without = [](std::string_view text, char mark) {
    while (text.ends_with(mark)) text.remove_suffix(1);
    return text;
  };
  std::vector<std::string> said;
  for (const std::string& piece : split_on(without(without(rstrip(output), '.'), ','), ",")) {
    if (std::string one = normalized_text(piece); !one.empty()) said.push_back(std::move(one));
  }
  std::vector<std::string> all;
  double found = 0;
  for (const std::vector<std::string>& forms : answers) {
    bool listed = false;
    for (const std::string& form : forms) {
      all.push_back(normalized_text(form));
      listed |= std::ranges::find(said, all.back()) != said.end();
    }
    found += listed ? 1 : 0;
  }
  const auto right = static_cast<double>(
      std::ranges::count_if(said, [&](const std::string& one) { return std::ranges::find(all, one) != all.end(); }));
  const double precision = said.empty() ? 0 : right / static_cast<double>(said.size());
  const double recall = found / static_cast<double>(answers.size());
  const double of_five = std::min(5.0, found) / std::min(5.0, static_cast<double>(answers.size()));
  const auto f1 = [&](double other) {
    return precision + other == 0 ? 0 : 2 * precision * other / (precision + other);
  };
  return {of_five,
          {{kPrecision.name, precision},
           {kRecall.name, recall},
           {kF1.name, f1(recall)},
           {kF1Top5.name, f1(of_five)},
           {"listed", static_cast<double>(said.size())}},
          {}};
}

MetricScore score(const MetricInput& input) {
  const std::string task = input.extras.value("task", "");
  const auto answers = input.extras.find("answers");
  if ((task != "asqa" && task != "qampari") || answers == input.extras.end() || answers->empty()) {
    fail({.place = "metric \"alce\": extras",
          .found = input.extras.dump().substr(0, 120),
          .expected = "a task, asqa or qampari, and its answers"});
  }
  const std::string output = without_citations(input.prediction);
  MetricScore made = task == "asqa" ? asqa(output, *answers, input.extras) : qampari(output, *answers);
  made.values["words"] = static_cast<double>(split_white_space(output).size());
  return made;
}

}  // namespace

KVARENA_METRIC(
    {.id = "alce",
     .title = "ALCE",
     .summary =
         "Answers without their citations: of ASQA the share of questions with a short answer in the text (str_em), "
         "with ROUGE-Lsum beside it; of QAMPARI the recall of the list, of which five answers are enough, with "
         "precision and F1. Recall and precision of citations are not computed: a model of 11 billion parameters "
         "(AutoAIS) judges them there; nor are QA-EM and MAUVE. Needs NLTK's data in $KVARENA_HOME.",
     .source = "princeton-nlp/HELMET @4526dfb eval_alce.py",
     .score = score,
     .data = [] { return std::vector<std::filesystem::path>{punkt_folder()}; },
     .stored = {kHit, kRouge, kPrecision, kRecall, kF1, kF1Top5}});

}  // namespace kvarena::metrics
