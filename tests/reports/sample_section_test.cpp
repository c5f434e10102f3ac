// Samples one by one: drops, the best method and the best share kept of each.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "reports/sections.h"

namespace kvarena::reports {
namespace {

/// Values of one cell: similarity, resident share and prompt length of each sample.
struct Measured {
  std::string method;
  std::vector<double> similarity;
  double share = 1;
};

results::ValueColumn column(const std::string& metric, const std::vector<double>& values) {
  results::ValueColumn column{.metric = metric, .unit = "fraction"};
  for (size_t i = 0; i < values.size(); ++i)
    column.rows.push_back(
        {.sample_id = fmt::format("s{}", i), .sample_index = static_cast<int64_t>(i), .value = values[i]});
  return column;
}

ExperimentData experiment(const std::vector<Measured>& methods) {
  ExperimentData data;
  for (const Measured& method : methods) {
    CellData cell;
    cell.row.state = results::CellState::done;
    cell.row.cell = {.workload = "samples",
                     .method = method.method,
                     .method_name = method.method,
                     .baseline = method.method == "full"};
    cell.values.own()["embedding_similarity"] = column("embedding_similarity", method.similarity);
    cell.values.own()["kept_bytes_fraction"] =
        column("kept_bytes_fraction", std::vector<double>(method.similarity.size(), method.share));
    std::vector<double> lengths;
    for (size_t i = 0; i < method.similarity.size(); ++i) lengths.push_back(100.0 * static_cast<double>(i + 1));
    cell.prompt_lengths = column("prompt_length", lengths);
    for (size_t i = 0; i < method.similarity.size(); ++i) cell.prompts.own().emplace(fmt::format("s{}", i), "p");
    data.cells.push_back(std::move(cell));
  }
  return data;
}

const Table& table(const Section& section, const std::string& id) {
  for (const Table& each : section.tables) {
    if (each.id == id) return each;
  }
  throw std::runtime_error("no table " + id);
}

TEST(SampleSection, DropsHaveTheirMedianQuartilesAndVariation) {
  const auto section = sample_section(experiment({{"full", {1, 1, 0.5, 1}}, {"half", {0.9, 0.8, 0.35, 0.6}, 0.5}}));
  ASSERT_TRUE(section);
  const TableRow& row = table(*section, "sample-drops").rows.at(0);  // drops of 10, 20, 30 and 40%
  EXPECT_NEAR(row.cells[3].value, 17.5, 1e-9);
  EXPECT_NEAR(row.cells[4].value, 25, 1e-9);
  EXPECT_NEAR(row.cells[5].value, 32.5, 1e-9);
  EXPECT_NEAR(row.cells[6].value, 12.909944 / 25, 1e-6);
  EXPECT_NE(section->charts.at(0).spec.find(R"("x":40.0)"), std::string::npos);
}

TEST(SampleSection, MethodsOfEqualBytesShareTheSamplesTheyAreBestFor) {
  const auto section = sample_section(experiment({{"full", {1, 1, 1, 1}},
                                                  {"a", {0.9, 0.9, 0.5, 0.7}, 0.25},
                                                  {"b", {0.8, 0.8, 0.9, 0.7}, 0.25},
                                                  {"other", {1, 1, 1, 1}, 0.6}}));
  ASSERT_TRUE(section);
  const Table& best = table(*section, "best-methods");
  ASSERT_EQ(best.rows.size(), 2U) << "a method alone at its bytes has no rival";
  EXPECT_NEAR(best.rows[0].cells[2].value, 62.5, 1e-9) << "two of four, and half of a tie";
  EXPECT_NEAR(best.rows[1].cells[2].value, 37.5, 1e-9);
  EXPECT_NEAR(best.rows[0].cells[3].value, 150, 1e-9) << "of the first and second prompt";
  EXPECT_NEAR(best.rows[1].cells[3].value, 300, 1e-9);
}

TEST(SampleSection, TheBestShareIsQualityLessBytes) {
  // Sample 0 is worth 0.9 - 0.5 against 0.6 - 0.25, sample 1 0.7 - 0.25 against 0.8 - 0.5; full KV is worth nothing.
  const auto section =
      sample_section(experiment({{"full", {1, 1}}, {"half", {0.9, 0.8}, 0.5}, {"fourth", {0.6, 0.7}, 0.25}}));
  ASSERT_TRUE(section);
  const TableRow& row = table(*section, "best-shares").rows.at(0);
  EXPECT_NEAR(row.cells[2].value, 37.5, 1e-9);
  EXPECT_NEAR(row.cells[3].value, 17.677670, 1e-6);
}

TEST(SampleSection, NothingWithoutSimilarity) {
  ExperimentData data = experiment({{"full", {1}}, {"half", {0.9}, 0.5}});
  for (CellData& cell : data.cells) cell.values.own().erase("embedding_similarity");
  EXPECT_FALSE(sample_section(data));
}

}  // namespace
}  // namespace kvarena::reports
