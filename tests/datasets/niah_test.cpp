#include <set>

#include "datasets/niah_protocol.h"
#include "datasets/texts/essays.h"
#include "tests/datasets/support.h"
#include "tests/datasets/word_tokens.h"

namespace kvarena::datasets {
namespace {

TEST(NiahGrid, AgreesWithTheOfficialCode) {
  const auto path = shared_data() / "metric-vectors" / "niah_grid.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no vectors at " << path;
  for (const nlohmann::json& row : json_lines(path)) {
    const std::string kind = row["kind"];
    if (kind == "depths_sigmoid") {
      EXPECT_EQ(niah_sigmoid_depths(row["min"], row["max"], row["n"]), row["expected"].get<std::vector<double>>());
    } else {
      EXPECT_EQ(niah_linear_grid(row["min"], row["max"], row["n"]), row["expected"].get<std::vector<int64_t>>())
          << kind;
    }
  }
}

TEST(NiahInsert, AgreesWithTheOfficialCode) {
  const auto path = shared_data() / "metric-vectors" / "niah_insert.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no vectors at " << path;
  for (const nlohmann::json& row : json_lines(path)) {
    const auto ids = [&](const char* field) { return row[field].get<std::vector<int32_t>>(); };
    const auto context = ids("context_ids");
    const auto needle = ids("needle_ids");
    const auto periods = ids("period_ids");
    EXPECT_EQ(niah_insert(context, needle, periods, row["context_length"], row["final_context_length_buffer"],
                          row["depth_percent"])
                  .ids,
              ids("expected"))
        << row["id"];
  }
}

TEST(NiahInsert, CountsAWalkThatFoundNoFullStop) {
  const std::vector<int32_t> context = {1, 2, 3, 4};
  const std::vector<int32_t> needle = {9};
  const std::vector<int32_t> period = {7};
  EXPECT_TRUE(niah_insert(context, needle, period, 10, 0, 50).walked_to_start);
  EXPECT_FALSE(niah_insert(context, needle, period, 10, 0, 0).walked_to_start) << "depth 0 is the start";
  EXPECT_EQ(niah_insert(context, needle, period, 0, 5, 50).ids, needle) << "no room leaves the needle alone";
}

TEST(SpreadOrder, VisitsEveryCellOnceAndEveryPrefixIsSpread) {
  for (const int64_t count : {1, 2, 3, 7, 20, 24, 1225}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < count; ++i) seen.insert(spread_order(i, count));
    EXPECT_EQ(seen.size(), static_cast<size_t>(count));
    EXPECT_EQ(*seen.rbegin(), count - 1);
  }
  // Ten of 1225 cells leave no gap of a quarter of the grid.
  std::set<int64_t> first = {0, 1225};
  for (int64_t i = 0; i < 10; ++i) first.insert(spread_order(i, 1225));
  for (auto it = std::next(first.begin()); it != first.end(); ++it) EXPECT_LT(*it - *std::prev(it), 306);
}

TEST(Niah, HidesTheNeedleOnceAtItsDepthInAContextOfItsLength) {
  const WordTokens tokens;
  const auto samples = all_samples("niah", R"({"lengths": [600, 1000], "depths": [0, 50, 100]})", {.tokens = &tokens});
  ASSERT_EQ(samples.size(), 6u);
  for (const Sample& sample : samples) {
    const auto extras = nlohmann::json::parse(sample.extras);
    ASSERT_EQ(sample.messages.size(), 3u);
    const std::string& context = sample.messages[1].content;
    const std::string needle = extras["needle"];
    const size_t at = context.find(needle);
    ASSERT_NE(at, std::string::npos) << sample.id;
    EXPECT_EQ(context.find(needle, at + 1), std::string::npos);
    EXPECT_NE(needle.find(sample.references[0]), std::string::npos);
    const auto length = static_cast<double>(tokens.encode(context).size());
    EXPECT_NEAR(length, extras["context_length"].get<double>() - 200, 8) << sample.id;
    const double share = 100.0 * static_cast<double>(at) / static_cast<double>(context.size() - needle.size());
    EXPECT_NEAR(share, extras["depth_percent"], 8) << "back to the last full stop at most";
    if (at > 0 && extras["depth_percent"] < 100) {
      EXPECT_EQ(context[at - 1], '.');
    }
    EXPECT_EQ(sample.question.message, 2u);
    EXPECT_FALSE(extras["walked_to_start"]);
  }
}

TEST(Niah, TheDefaultIsTheOfficialGrid) {
  const WordTokens tokens;
  SampleReader reader =
      make_workload("niah", R"({"max_length": 1200, "length_count": 3})", "test")->open({.tokens = &tokens});
  size_t count = 0;
  while (reader.next()) ++count;
  EXPECT_EQ(count, 3u * 35u);
}

TEST(Niah, TheCompletionFormIsAPlainPromptThatEndsInAnswer) {
  const WordTokens tokens;
  const auto samples =
      all_samples("niah", R"({"lengths": [500], "depths": [50], "style": "completion"})", {.tokens = &tokens});
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_FALSE(samples[0].chat_template);
  EXPECT_TRUE(samples[0].messages[0].content.starts_with("<|im_start|> This is a very long story book: <book> "));
  EXPECT_EQ(question_text(samples[0]),
            " </book>.\n Based on the content of the book, Question: What is the best thing to do in San "
            "Francisco?\nAnswer:");
}

TEST(Niah, AsksWhatItIsTold) {
  const WordTokens tokens;
  const auto samples =
      all_samples("niah", R"({"lengths": [500], "depths": [50], "query": "Where?"})", {.tokens = &tokens});
  EXPECT_TRUE(samples.at(0).messages.at(2).content.starts_with("Where? Don't")) << samples[0].messages[2].content;
}

TEST(NiahMulti, HidesThreeNeedlesInOrderBehindTheDepth) {
  const WordTokens tokens;
  const auto samples = all_samples("niah_multi", R"({"lengths": [1200], "depths": [40]})", {.tokens = &tokens});
  ASSERT_EQ(samples.size(), 1u);
  const std::string& context = samples[0].messages[1].content;
  const size_t figs = context.find("Figs are");
  const size_t ham = context.find("Prosciutto is");
  const size_t cheese = context.find("Goat cheese is");
  ASSERT_NE(cheese, std::string::npos);
  const auto share = [&](size_t at) { return 100.0 * static_cast<double>(at) / static_cast<double>(context.size()); };
  EXPECT_NEAR(share(figs), 40, 5);
  EXPECT_NEAR(share(ham), 60, 5);
  EXPECT_NEAR(share(cheese), 80, 5);
  EXPECT_EQ(samples[0].references, (std::vector<std::string>{"Figs", "Prosciutto", "Goat cheese"}));
}

TEST(Niah, NeedsATokenizerAndSensibleNumbers) {
  EXPECT_NE(error_of([] { (void)all_samples("niah"); }).find("no tokenizer"), std::string::npos);
  const std::string message =
      error_of([] { (void)make_workload("niah", R"({"depths": [120], "lengths": [0]})", "cfg: workloads[0]"); });
  EXPECT_NE(message.find("cfg: workloads[0]: depths: expected percentages"), std::string::npos) << message;
  EXPECT_NE(message.find("lengths"), std::string::npos);
  const WordTokens tokens;
  EXPECT_NE(
      error_of([&] { (void)all_samples("niah", R"({"haystack": "/no/such"})", {.tokens = &tokens}); }).find("/no/such"),
      std::string::npos);
}

TEST(Niah, AUsersHaystackIsJoinedByName) {
  const auto folder = std::filesystem::temp_directory_path() / ("kvarena_hay_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "b.txt") << "Second text. ";
  std::ofstream(folder / "a.txt") << "First text. ";
  std::ofstream(folder / "c.md") << "Not hay. ";
  const WordTokens tokens;
  const auto samples = all_samples(
      "niah",
      R"({"lengths": [30], "depths": [100], "buffer": 0, "needle": "N.", "haystack": ")" + folder.string() + "\"}",
      {.tokens = &tokens});
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(samples.at(0).messages[1].content.starts_with("First text. Second text. First text. Second"))
      << samples[0].messages[1].content;
}

TEST(Essays, AreEqualForEqualSeedsDifferentForOthersAndOriginalEnough) {
  EXPECT_EQ(write_essays(3, 50000), write_essays(3, 50000));
  EXPECT_NE(write_essay(3, 0), write_essay(4, 0));
  EXPECT_NE(write_essay(3, 0), write_essay(3, 1));
  const std::string essays = write_essays(3, 50000);
  for (const char* trace : {"{", "}", " a a", " a e", " a o", "  ", "San Francisco", "password"}) {
    EXPECT_EQ(essays.find(trace), std::string::npos)
        << trace << ": " << essays.substr(std::min(essays.find(trace), essays.size()), 60);
  }
  const std::string one = write_essay(7, 2);
  EXPECT_GT(one.size(), 2000u);
  EXPECT_LT(one.size(), 6000u);
}

}  // namespace
}  // namespace kvarena::datasets
