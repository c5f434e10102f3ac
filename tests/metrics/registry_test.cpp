#include "metrics/registry.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"

namespace kvarena::metrics {
namespace {

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(MetricRegistry, HoldsExactlyOneMetricForEveryMetricFile) {
  size_t files = 0;
  for (const char* folder : {"text", "functional", "distribution", "latency", "protocol"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(KVARENA_SOURCE_DIR) / "metrics" / folder)) {
      if (entry.path().extension() != ".cpp") continue;
      std::ifstream in(entry.path());
      const std::string text((std::istreambuf_iterator<char>(in)), {});
      EXPECT_EQ(count_of(text, "KVARENA_METRIC("), 1u) << entry.path();
      ++files;
    }
  }
  EXPECT_EQ(all_metrics().size(), files);
}

TEST(MetricRegistry, EveryMetricTellsWhatItIsAndWhereItComesFrom) {
  std::set<std::string> titles;
  for (const MetricEntry* metric : all_metrics()) {
    SCOPED_TRACE(metric->id);
    EXPECT_FALSE(metric->title.empty());
    EXPECT_TRUE(titles.insert(metric->title).second) << "the title is used twice";
    EXPECT_FALSE(metric->unit.empty());
    EXPECT_FALSE(metric->summary.empty());
    EXPECT_FALSE(metric->source.empty());
    EXPECT_GE(metric->version, 1);
    EXPECT_GT(metric->table_scale, 0);
    const bool scores_text = metric->kind == MetricKind::text || metric->kind == MetricKind::functional;
    EXPECT_EQ(metric->score != nullptr, scores_text);
    EXPECT_EQ(&find_metric(metric->id), metric);
  }
}

TEST(MetricRegistry, AMisspelledIdNamesTheNearest) {
  try {
    (void)find_metric("rouge_ll");
    FAIL() << "found";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"rouge_l\""), std::string::npos) << error.what();
  }
}

TEST(MetricRegistry, AMetricWithoutTextScoreRefusesASample) {
  const nlohmann::json none = nlohmann::json::object();
  EXPECT_THROW((void)score_sample(find_metric("kl"), {"x", {}, none}), UserError);
}

TEST(MetricRegistry, AnExtraOfTheWrongTypeIsTheUsersMistake) {
  const std::vector<std::string> answers = {"x"};
  EXPECT_THROW((void)score_sample(find_metric("qa_f1"), {"x", answers, {{"first_line_only", "yes"}}}), UserError);
  EXPECT_THROW((void)score_sample(find_metric("qa_f1"), {"x", answers, nlohmann::json(nullptr)}), UserError);
  EXPECT_THROW((void)score_sample(find_metric("code_sim"), {"x", answers, {{"backend", 3}}}), UserError);
}

TEST(MetricRegistry, FirstLineRuleCutsAfterLeadingNewlines) {
  const std::vector<std::string> answers = {"Ida Brandt"};
  const nlohmann::json extras = {{"first_line_only", true}};
  const auto& qa_f1 = find_metric("qa_f1");
  EXPECT_EQ(score_sample(qa_f1, {"\n\nIda Brandt\nPassage: next", answers, extras}).score, 1.0);
  EXPECT_LT(score_sample(qa_f1, {"\n\nIda Brandt\nPassage: next", answers, nlohmann::json::object()}).score, 1.0);
}

// No scorer may throw anything but a UserError at a prediction, whatever a damaged cache makes a model write.
TEST(MetricRegistry, NoScorerFailsOnHostilePredictions) {
  const nlohmann::json extras = {{"all_classes", {"Food", "Date"}},
                                 {"required_length", 100},
                                 {"task", "passkey"},
                                 {"functions", nlohmann::json::array()},
                                 {"category", "simple_python"}};
  const std::vector<std::string> references = {"Paragraph 7 段落7 #### 7"};
  for (const MetricEntry* metric : all_metrics()) {
    if (metric->score == nullptr) continue;
    SCOPED_TRACE(metric->id);
    for (const std::string& prediction :
         {std::string(), std::string("\xff\xfe\xc3"), std::string("\0\0a\0", 4), std::string(20000, '('),
          std::string(5000, '['), std::string(5000, '{'), std::string("....  ..."), std::string("{\"name\": 1}"),
          std::string("```json\n{\"a\": \"\\ud800\"}\n```")}) {
      try {
        const double score = score_sample(*metric, {prediction, references, extras}).score;
        EXPECT_GE(score, 0.0);
        EXPECT_LE(score, 1.0);
      } catch (const UserError&) {
      }
    }
  }
}

}  // namespace
}  // namespace kvarena::metrics
