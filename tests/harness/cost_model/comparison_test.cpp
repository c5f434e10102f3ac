// The papers' headline figures, modelled from the inputs that the papers state.

#include "harness/cost_model/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/cost_model/hardware.h"

namespace kvarena::cost_model {
namespace {

const std::filesystem::path kRoot = KVARENA_SOURCE_DIR;
const DescriptionFolders kFolders{.hardware = kRoot / "configs" / "hardware", .shapes = kRoot / "configs" / "shapes"};

Comparison comparison(const std::string& name) {
  return read_comparison(kRoot / "configs" / "modelled" / (name + ".json"), kFolders);
}

std::vector<Comparison> all_comparisons() {
  std::vector<Comparison> all;
  for (const std::string& name : cost_model::description_names(kRoot / "configs" / "modelled"))
    all.push_back(comparison(name));
  return all;
}

const ComparedFigure& figure(const Comparison& comparison, const std::string& row, const std::string& quantity) {
  for (const ComparedFigure& found : comparison.figures) {
    if (found.row == row && found.quantity == quantity) return found;
  }
  throw std::out_of_range(row + ", " + quantity);
}

TEST(PublishedAndModelled, WithinFifteenPercentOrTheUnknownInputIsNamed) {
  for (const Comparison& compared : all_comparisons()) {
    EXPECT_FALSE(compared.figures.empty()) << compared.name;
    for (const ComparedFigure& found : compared.figures) {
      EXPECT_TRUE(found.within_tolerance() || !found.unknown.empty())
          << compared.name << ": " << found.row << ", " << found.quantity << ": published "
          << found.published.value_or(0) << ", modelled " << found.modelled;
    }
  }
}

TEST(PublishedAndModelled, EvicPressFigure2IsExact) {
  for (const ComparedFigure& found : comparison("evicpress-figure2").figures) {
    ASSERT_TRUE(found.published) << found.row;
    EXPECT_NEAR(found.modelled, *found.published, 1e-9 * *found.published) << found.row << ", " << found.quantity;
  }
}

TEST(PublishedAndModelled, SpeCacheTable3FullKv) {
  const Comparison table = comparison("specache-table3");
  for (const char* row : {"full, 2k", "full, 8k", "full, 32k"}) {
    EXPECT_NEAR(figure(table, row, "batch").difference(), 0, kHeadlineTolerance) << row;
    EXPECT_NEAR(figure(table, row, "tokens/s").difference(), 0, kHeadlineTolerance) << row;
  }
  // The packed rows are bounds: nothing that is published is faster or larger than what the bytes allow.
  for (const ComparedFigure& found : table.figures) {
    if (found.row.find("bit") == std::string::npos) continue;
    ASSERT_TRUE(found.published) << found.row;
    EXPECT_GT(found.modelled, *found.published) << found.row;
  }
}

TEST(PublishedAndModelled, SpeContextTable3FullKvOfLlama) {
  const Comparison table = comparison("specontext-table3");
  for (const char* row : {"Llama-8B, 2k,32k, full", "Llama-8B, 16k,2k, full", "Llama-8B, 32k,2k, full"}) {
    EXPECT_NEAR(figure(table, row, "tokens/s").difference(), 0, kHeadlineTolerance) << row;
  }
}

TEST(PublishedAndModelled, VeriCacheWhereTheInputsAreStated) {
  EXPECT_NEAR(figure(comparison("vericache-figure13a"), "Qwen3-32B, 0.2 of memory for caches", "speed-up").difference(),
              0, kHeadlineTolerance);
}

TEST(PublishedAndModelled, SpeContextFigure11BeginsAndEndsAsTable3) {
  const Comparison ablation = comparison("specontext-figure11"), table = comparison("specontext-table3");
  for (const char* lengths : {"2k,32k", "32k,2k"}) {
    const auto of = [&](const char* what) {
      return figure(ablation, std::string(lengths) + what, "tokens/s").modelled;
    };
    EXPECT_EQ(of(", full"), figure(table, std::string("Llama-8B, ") + lengths + ", full", "tokens/s").modelled);
    EXPECT_GT(of(", head, elastic and beside computing"), of(", head, all reloaded"))
        << lengths << ": a fifth of the bytes, beside computing";
  }
}

TEST(PublishedAndModelled, SpeCacheFigure2FromTheLinkAlone) {
  const Comparison gathered = comparison("specache-figure2-right");
  EXPECT_NEAR(figure(gathered, "top 1%, gathered", "of the whole cache's transfer, %").modelled, 5, 0.01);
  EXPECT_NEAR(figure(gathered, "top 1%, contiguous", "of the whole cache's transfer, %").modelled, 1, 0.01);
  // 32k entries of 131,072 bytes at 0.86 of 32 GB/s.
  EXPECT_NEAR(figure(gathered, "all, contiguous", "transfer, ms").modelled, 32768 * 131072.0 / (0.86 * 32e6), 0.1);
  const Comparison steps = comparison("specache-figure2-middle");
  EXPECT_LT(figure(steps, "2k", "transfer over step").modelled, figure(steps, "32k", "transfer over step").modelled);
}

TEST(PublishedAndModelled, WhatIsDrawnWithoutANumberIsNotCounted) {
  const std::string page = comparison_page({comparison("specache-figure2-middle")});
  EXPECT_NE(page.find("Of 0 figures 0 are within"), std::string::npos);
  EXPECT_NE(page.find("15 more are drawn"), std::string::npos);
  EXPECT_NE(page.find("| drawn |"), std::string::npos);
}

TEST(PublishedAndModelled, ThePageInDocsIsWhatTheModelSays) {
  const std::string page = comparison_page(all_comparisons());
  const std::filesystem::path file = kRoot / "docs" / "modelled.md";
  const std::filesystem::path made = std::filesystem::path(::testing::TempDir()) / "modelled.md";
  write_file(made, page);
  const std::string present = read_file(file);
  const auto [in_docs, modelled] = std::ranges::mismatch(present, page);
  EXPECT_TRUE(present == page) << file << " differs at byte " << in_docs - present.begin() << ": \""
                               << std::string(in_docs, present.end()).substr(0, 60) << "\" is now \""
                               << std::string(modelled, page.end()).substr(0, 60)
                               << "\"; the page as it is modelled now: " << made;
}

class Mistakes : public ::testing::Test {
 protected:
  std::string problem_of(const std::string& text) const {
    const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / "comparison.json";
    write_file(file, text);
    try {
      (void)read_comparison(file, kFolders);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(Mistakes, AreToldWithTheirPlace) {
  EXPECT_NE(problem_of(R"({"title": "t", "source": "s", "kind": "decode", "rows": []})").find(R"(one of "decoding")"),
            std::string::npos);
  EXPECT_NE(problem_of(R"({"title": "t", "source": "s", "kind": "decoding", "rows": []})").find("a list of rows"),
            std::string::npos);
  const std::string row = problem_of(R"({"title": "t", "source": "s", "kind": "decoding",
      "rows": [{"label": "x", "context": 10, "outputs": 1, "scheme": {"bits": 0}}]})");
  EXPECT_NE(row.find("rows[0].outputs: found an unknown key"), std::string::npos) << row;
  EXPECT_NE(row.find("rows[0].scheme.bits: found 0"), std::string::npos) << row;
  const std::string published = problem_of(R"({"title": "t", "source": "s", "kind": "decoding",
      "rows": [{"label": "x", "context": 10, "output": 1, "hardware": "a6000-48gb", "shape": "llama-3-8b",
                "published": {"tokens": 1}}]})");
  EXPECT_NE(published.find("rows[0].published.tokens: found 1"), std::string::npos) << published;
  const std::string shown = problem_of(R"({"title": "t", "source": "s", "kind": "transfers",
      "rows": [{"label": "x", "context": 10, "hardware": "a6000-48gb", "shape": "llama-3-8b", "shown": ["step"]}]})");
  EXPECT_NE(shown.find("rows[0].shown: found \"step\""), std::string::npos) << shown;
  const std::string machine = problem_of(R"({"title": "t", "source": "s", "kind": "decoding",
      "rows": [{"label": "x", "context": 10, "output": 1, "hardware": "a600", "shape": "llama-3-8b"}]})");
  EXPECT_NE(machine.find("a6000-48gb"), std::string::npos) << machine;
}

}  // namespace
}  // namespace kvarena::cost_model
