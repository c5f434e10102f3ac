// IFEval's checks against the official ones; fixture by tests/golden/metrics_ifeval.py.
#include "metrics/algorithms/ifeval.h"

#include <gtest/gtest.h>

#include <set>

#include "metrics/algorithms/english_sentences.h"
#include "metrics/algorithms/langdetect.h"
#include "metrics/registry.h"
#include "tests/metrics/ifeval_support.h"
#include "tests/support/compared.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

MetricScore score(const std::string& response, const std::vector<std::pair<std::string, json>>& instructions) {
  json ids = json::array(), arguments = json::array();
  for (const auto& [id, values] : instructions) {
    ids.push_back(id);
    arguments.push_back(values);
  }
  return score_sample(find_metric("ifeval"), {response, {}, {{"instruction_id_list", ids}, {"kwargs", arguments}}});
}

TEST(Ifeval, VerdictsAreThoseOfTheOfficialCode) {
  SKIP_WITHOUT(punkt_folder());
  SKIP_WITHOUT(langdetect_folder());
  std::set<std::string> seen;
  for (const json& row : ifeval_fixture()["verdicts"]) {
    seen.insert(row[0].get<std::string>());
    for (size_t i = 0; i < ifeval_fixture()["texts"].size(); ++i) {
      const auto text = ifeval_fixture()["texts"][i].get<std::string>();
      const MetricScore found = score(text, {{row[0], row[1]}});
      EXPECT_EQ(found.score, row[2].get_ref<const std::string&>()[i] - '0') << row[0] << row[1] << text;
      EXPECT_EQ(found.values.at("ifeval_prompt_loose"), row[3].get_ref<const std::string&>()[i] - '0')
          << row[0] << row[1] << text;
    }
  }
  const auto all = ifeval_instructions();
  EXPECT_EQ(seen, std::set<std::string>(all.begin(), all.end()));
  EXPECT_EQ(seen.size(), 25u);
  testing::compared_scores("ifeval", ifeval_fixture()["verdicts"].size() * ifeval_fixture()["texts"].size());
}

TEST(Ifeval, CountsInstructionsAndNamesThoseNotFollowed) {
  const MetricScore found =
      score("Intro:\n\"a, b\"", {{"punctuation:no_comma", json::object()},
                                 {"startend:quotation", json::object()},
                                 {"keywords:existence", {{"keywords", {"intro"}}, {"letter", nullptr}}},
                                 {"detectable_format:title", json::object()}});
  EXPECT_EQ(found.score, 0);
  EXPECT_EQ(found.values.at("instructions"), 4);
  EXPECT_EQ(found.values.at("ifeval_instruction_strict"), 0.25);
  EXPECT_EQ(found.values.at("ifeval_instruction_loose"), 0.75) << "the first line has no comma, the second is quoted";
  EXPECT_EQ(found.values.at("ifeval_prompt_loose"), 0);
  EXPECT_EQ(found.notes.at("not_followed"), "punctuation:no_comma, startend:quotation, detectable_format:title");
}

TEST(Ifeval, WordsAreThoseOfPythonsRe) {
  const auto at_least = [](const std::string& response, int words) {
    return score(response, {{"length_constraints:number_words", {{"num_words", words}, {"relation", "at least"}}}})
        .score;
  };
  EXPECT_EQ(at_least("½ cup, 2² = 4", 4), 1);
  EXPECT_EQ(at_least("½ cup, 2² = 4", 5), 0);
  EXPECT_EQ(at_least("बच्चे", 2), 1) << "a sign between letters ends a word";
}

TEST(Ifeval, AMarkToCountIsCounted) {
  const json four = {{"letter", "#"}, {"let_frequency", 4}, {"let_relation", "at least"}};
  EXPECT_EQ(score("#a #b #c #d", {{"keywords:letter_frequency", four}}).score, 1);
  EXPECT_EQ(score("#a #b #c", {{"keywords:letter_frequency", four}}).score, 0);
}

TEST(Ifeval, ARowThatCannotBeJudgedIsRefusedWithItsPlace) {
  const auto refused = [](const std::string& id, const json& arguments) {
    return message_of([&] { (void)score("a response", {{id, arguments}}); });
  };
  EXPECT_NE(refused("punctuation:no_coma", json::object()).find("punctuation:no_comma"), std::string::npos);
  EXPECT_NE(refused("length_constraints:number_words", {{"relation", "at least"}}).find("num_words"),
            std::string::npos);
  EXPECT_NE(refused("keywords:existence", {{"keywords", {"a("}}}).find("a("), std::string::npos);
  EXPECT_NE(refused("keywords:existence", {{"keywords", json::array()}}).find("keywords"), std::string::npos);
  EXPECT_NE(
      refused("keywords:frequency", {{"keyword", "a"}, {"frequency", 1}, {"relation", "more than"}}).find("more than"),
      std::string::npos);
  EXPECT_NE(refused("keywords:letter_frequency", {{"letter", "ab"}, {"let_frequency", 1}, {"let_relation", "at least"}})
                .find("ab"),
            std::string::npos);
  EXPECT_NE(refused("startend:quotation", nullptr).find("kwargs[0]"), std::string::npos);
  EXPECT_THROW((void)score("a", {}), UserError);
}

}  // namespace
}  // namespace kvarena::metrics
