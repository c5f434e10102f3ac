// Draws and questions that count as one sample.

#include "reports/grouped_rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace kvarena::reports {
namespace {

TEST(GroupedRows, DrawsOfASampleAreOneValueAndPassWhereOneIsRight) {
  CellData cell{.row = {.done_samples = 5}};
  cell.card = {{"draws", "2"}};
  results::ValueColumn& scores = cell.values.own()["math_answer"] = {.metric = "math_answer", .unit = "fraction"};
  const std::vector<double> drawn = {0, 1, 0, 0, 1};  // of a third sample the second draw is still to come
  for (int64_t i = 0; i < std::ssize(drawn); ++i) {
    scores.rows.push_back(
        {.sample_id = fmt::format("s{}#{}", 9 - i / 2, i % 2 + 1), .sample_index = i, .value = drawn[i]});
  }
  results::ValueColumn& departures = cell.values.own()["first_divergence"] = scores;
  departures.rows[0].value = departures.rows[2].value = departures.rows[3].value = std::nan("");
  average_draws(cell, "math_answer");
  EXPECT_EQ(cell.numbers("math_answer"), (std::vector<double>{0.5, 0, 1}));
  EXPECT_EQ(cell.numbers("pass_at_k"), (std::vector<double>{1, 0, 1}));
  EXPECT_EQ(cell.values.own()["math_answer"].rows[1].sample_id, "s8#1");
  EXPECT_EQ(cell.values.own()["math_answer"].rows[1].sample_index, 1);
  EXPECT_EQ(cell.row.done_samples, 3);
  const std::vector<double> means = cell.numbers("first_divergence");
  EXPECT_EQ(means[0], 1) << "of the draws that have it";
  EXPECT_TRUE(std::isnan(means[1]));
}

TEST(GroupedRows, QuestionsAboutAContextCountAsOne) {
  CellData cell{.row = {.done_samples = 5}};
  const std::vector<double> scores = {1, 0, 0, std::nan(""), 1}, seconds = {2, 4, 6, 8, 10};
  for (const auto& [metric, values] : {std::pair("qa_f1", scores), std::pair("kl_nats", seconds)}) {
    results::ValueColumn& column = cell.values.own()[metric] = {.metric = metric};
    for (int64_t i = 0; i < 5; ++i)
      column.rows.push_back(
          {.sample_id = fmt::format("s{}", i), .sample_index = i, .value = values[static_cast<size_t>(i)]});
  }
  cell.prompt_lengths = cell.values.own()["kl_nats"];
  average_contexts(cell, {{"s0", "a"}, {"s1", "a"}, {"s2", "a"}, {"s3", "b"}});
  EXPECT_EQ(cell.contexts, 3);
  EXPECT_EQ(cell.numbers("kl_nats"), (std::vector<double>{4, 8, 10}));
  EXPECT_EQ(cell.values.own()["kl_nats"].rows[2].sample_id, "s4");
  CellData fewer{.row = {.done_samples = 2}};
  fewer.values.own()["kl_nats"] = {.metric = "kl_nats",
                                   .rows = {{.sample_id = "s0", .value = 1}, {.sample_id = "s1", .value = 1}}};
  average_contexts(fewer, {{"s0", "a"}, {"s1", "a"}});
  EXPECT_NE(fewer.values.own()["kl_nats"].rows[0].sample_id, cell.values.own()["kl_nats"].rows[0].sample_id)
      << "other questions";
  const std::vector<double> right = cell.numbers("qa_f1");
  EXPECT_EQ(right[0], 1.0 / 3);
  EXPECT_TRUE(std::isnan(right[1]));
  EXPECT_EQ(cell.prompt_lengths->rows[0].value, 4);
  CellData plain{.row = {.done_samples = 5}};
  plain.values.own()["qa_f1"] = {.metric = "qa_f1", .rows = {{.sample_id = "s0", .value = 1}}};
  average_contexts(plain, {});
  EXPECT_EQ(plain.contexts, 0);
  EXPECT_EQ(plain.values.own()["qa_f1"].rows[0].sample_id, "s0");
}

}  // namespace
}  // namespace kvarena::reports
