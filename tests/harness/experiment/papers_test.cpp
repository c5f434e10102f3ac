// The list of a paper's tables and figures: what is read, and what is refused with which words.

#include "harness/experiment/papers.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/harness/experiment/support.h"

namespace kvarena::experiment {
namespace {

namespace fs = std::filesystem;

/// A folder of papers with one paper, "sample", made of `index` and of empty configs named `configs`.
struct Papers {
  explicit Papers(const std::string& index, const std::vector<std::string>& configs = {}) {
    fs::create_directory(folder / "sample");
    std::ofstream(folder / "sample/paper.json") << index;
    for (const std::string& config : configs) std::ofstream(folder / ("sample/" + config)) << "{}";
  }

  [[nodiscard]] std::string problems() const {
    try {
      (void)read_papers(folder / "");
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder;
};

std::string index_of(const std::string& items, const std::string& notes = "[]") {
  return R"({"title": "A paper", "source": "arXiv:0000.00000", "notes": )" + notes + R"(, "items": [)" + items + "]}";
}

TEST(Papers, ItemsKeepThePapersOrderAndFindTheirConfigs) {
  const Papers sample(index_of(R"({"item": "figure1", "title": "a diagram", "kind": "illustration"},
                                  {"item": "table2", "title": "scores", "gpu": true, "notes": ["read so"],
                                   "scaled": ["engine.seed=1"], "parts": {"covered": 2, "all": 5, "of": "columns"}},
                                  {"item": "table1", "title": "speed", "kind": "modelled", "command": "kvarena x"},
                                  {"item": "table3", "title": "more", "missing": "not built"})"),
                      {"table2.json"});
  const auto papers = read_papers(sample.folder / "");
  ASSERT_EQ(papers.size(), 1U);
  EXPECT_EQ(papers[0].name, "sample");
  EXPECT_EQ(papers[0].source, "arXiv:0000.00000");
  const auto& items = papers[0].items;
  ASSERT_EQ(items.size(), 4U);
  EXPECT_EQ(items[0].kind, ItemKind::illustration);
  EXPECT_FALSE(items[0].covered());
  EXPECT_EQ(items[1].item, "table2");
  EXPECT_EQ(items[1].config.filename(), "table2.json");
  EXPECT_TRUE(items[1].gpu);
  EXPECT_EQ(items[1].notes, std::vector<std::string>{"read so"});
  EXPECT_EQ(items[1].scaled, std::vector<std::string>{"engine.seed=1"});
  EXPECT_EQ(items[1].parts.text(), "2 of 5 columns");
  EXPECT_EQ(items[2].parts.text(), "");
  EXPECT_EQ(items[2].kind, ItemKind::modelled);
  EXPECT_TRUE(items[2].covered());
  EXPECT_FALSE(items[3].covered());
  EXPECT_EQ(items[3].missing, "not built");
}

TEST(Papers, NotesOfThePaperStandBeforeThoseOfItemsThatRun) {
  const std::string items = R"({"item": "figure1", "title": "a diagram", "kind": "illustration"},
                               {"item": "table2", "title": "scores", "notes": ["read so"]},
                               {"item": "table1", "title": "speed", "kind": "modelled", "command": "kvarena x"})";
  const Papers sample(index_of(items, R"(["of all"])"), {"table2.json"});
  const auto read = read_papers(sample.folder / "").at(0).items;
  EXPECT_EQ(read[1].notes, (std::vector<std::string>{"of all", "read so"}));
  for (const size_t other : {0, 2}) EXPECT_TRUE(read[other].notes.empty()) << other;
  const std::string problems = Papers(index_of(items, R"("one")"), {"table2.json"}).problems();
  EXPECT_NE(problems.find("paper.json: notes: found \"one\""), std::string::npos) << problems;
}

TEST(Papers, AnItemIsFoundByItsConfigAndNamesASmallOne) {
  const TemporaryFolder configs;
  fs::create_directories(configs / "papers/sample");
  for (const char* file : {"small.json", "papers/sample/table1.json"}) std::ofstream(configs / file) << "{}";
  const auto index = [&](const std::string& small) {
    std::ofstream(configs / "papers/sample/paper.json") << index_of(
        R"({"item": "table1", "title": "scores", "gpu": true, "small_scaled": ["engine.seed=1"], "small": ")" + small +
        R"("})");
  };
  index("small.json");
  const auto item = find_item(configs / "papers", configs / "papers/sample/../sample/table1.json");
  ASSERT_TRUE(item.has_value());
  EXPECT_TRUE(item->gpu);
  EXPECT_TRUE(fs::equivalent(item->small, configs / "small.json"));
  EXPECT_EQ(item->small_scaled, std::vector<std::string>{"engine.seed=1"});
  EXPECT_FALSE(find_item(configs / "papers", configs / "small.json").has_value());
  EXPECT_FALSE(find_item(configs / "papers", configs / "no.json").has_value());
  index("smal.json");
  EXPECT_THROW((void)read_papers(configs / "papers"), UserError);
}

TEST(Papers, EveryProblemOfAnIndexIsTold) {
  const std::string problems =
      Papers(index_of(R"({"item": "table1", "title": "scores"}, {"item": "table1", "title": "again", "missing": "x"},
                         {"item": "table2", "title": "t", "missing": "x", "tittle": "a slip"}, {"item": "table3", "title": "t", "missing": "x"},
                         {"item": "table4", "title": "t", "kind": "guessed", "missing": "x"},
                         {"item": "table5", "title": "t", "command": "kvarena x"}, 7,
                         {"item": "table6", "title": "t", "missing": "x", "parts": {"covered": 3, "all": 3, "of": "rows"}},
                         {"item": "table7", "title": "t", "missing": "x", "small_scaled": ["engine.seed=1"]})"),
             {"table3.json", "table9.json"})
          .problems();
  for (const char* part : {"paper.json: items[0]: found neither a config", "items[1].item: found \"table1\" twice",
                           "items[2].tittle", "did you mean \"title\"?", "items[3].missing", "guessed",
                           "items[5].command", "items[6]: found 7", "items[7].parts: found 3 of 3 rows",
                           "items[8].small_scaled: found [\"engine.seed=1\"]", "nothing of table9.json"}) {
    EXPECT_NE(problems.find(part), std::string::npos) << part << "\n" << problems;
  }
}

TEST(Papers, AnIndexThatIsNoListOrNoJsonIsRefused) {
  EXPECT_NE(Papers(R"({"title": "t", "source": "s", "items": []})").problems().find("items: found []"),
            std::string::npos);
  EXPECT_NE(Papers("[1]").problems().find("expected an object"), std::string::npos);
  EXPECT_NE(Papers("{\n oops").problems().find("paper.json"), std::string::npos);
  EXPECT_THROW((void)read_papers("/no/such/folder"), UserError);
}

}  // namespace
}  // namespace kvarena::experiment
