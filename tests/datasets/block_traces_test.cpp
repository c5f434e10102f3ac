// Traces by blocks: sessions of one that names none, what prompts share, and rows that say something else.

#include <fmt/format.h>

#include "tests/datasets/support.h"
#include "tests/datasets/word_tokens.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

/// A data folder with one file.
class Folder {
 public:
  Folder(const std::string& file, const std::string& text)
      : path_(std::filesystem::temp_directory_path() / fmt::format("kvarena_blocks_{}", ::getpid())) {
    std::filesystem::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::vector<Sample> samples(const std::string& workload, const std::string& parameters = "{}") const {
    return all_samples(workload, parameters, {.data_dir = path_});
  }

 private:
  std::filesystem::path path_;
};

int64_t words_of(const Sample& sample) { return std::ssize(WordTokens().encode(sample.messages.at(0).content)); }

int64_t shared_words(const Sample& a, const Sample& b) {
  const WordTokens tokens;
  const auto x = tokens.encode(a.messages.at(0).content), y = tokens.encode(b.messages.at(0).content);
  return std::ranges::mismatch(x, y).in1 - x.begin();
}

std::string request(int64_t ms, int64_t prompt, const json& blocks) {
  return json{{"timestamp", ms}, {"input_length", prompt}, {"output_length", 40}, {"hash_ids", blocks}}.dump() + "\n";
}

TEST(MooncakeTrace, FindsSessionsByTheBlocksOfTheirPrompts) {
  const Folder folder("mooncake/conversation_trace.jsonl",
                      request(0, 1100, {0, 1, 2}) +            // a session; its last block is not full
                          request(1000, 520, {0, 3}) +         // nothing but the beginning that all share
                          request(4000, 1500, {0, 1, 4}) +     // goes on with the first
                          request(5000, 600, {0, 5}) +         // no session goes on with the second
                          request(9000, 1600, {0, 1, 4, 6}));  // and with the third
  const auto samples = folder.samples("mooncake-trace");
  ASSERT_EQ(samples.size(), 5U);
  std::vector<std::string> ids;
  for (const Sample& sample : samples) ids.push_back(sample.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"s0-0", "s1-0", "s0-1", "s2-0", "s0-2"}));
  EXPECT_EQ(samples[2].recorded->session, "s0");
  EXPECT_EQ(samples[2].recorded->think_s, 4);
  EXPECT_EQ(samples[2].recorded->at_s, 4);
  EXPECT_EQ(samples[3].recorded->think_s, 0);
  EXPECT_EQ(samples[0].generation.max_new_tokens, 40);
  EXPECT_EQ(words_of(samples[0]), 1100);
  EXPECT_EQ(shared_words(samples[0], samples[1]), 512);
  EXPECT_GE(shared_words(samples[0], samples[2]), 1024);
  EXPECT_LT(shared_words(samples[0], samples[2]), 1050);
  EXPECT_EQ(shared_words(samples[2], samples[4]), 1500);
  EXPECT_EQ(std::ssize(WordTokens().encode(question_text(samples[0]))), 1100 - 1024) << "what comes last is asked";
  EXPECT_TRUE(question_text(samples[0]).starts_with(" "));
}

TEST(MooncakeTrace, ShrinksBlocksPromptsAndAnswers) {
  const Folder folder("mooncake/conversation_trace.jsonl", request(0, 1100, {0, 1, 2}) + request(1, 1024, {0, 7}));
  const auto samples = folder.samples("mooncake-trace", R"({"shrink": 8})");
  EXPECT_EQ(words_of(samples[0]), 137);
  EXPECT_EQ(words_of(samples[1]), 128);
  EXPECT_EQ(samples[1].generation.max_new_tokens, 5);
  EXPECT_EQ(shared_words(samples[0], samples[1]), 64);
  const auto least = folder.samples("mooncake-trace", R"({"shrink": 4096})");
  EXPECT_EQ(words_of(least[0]), 2);
  EXPECT_TRUE(least[0].has_context());
}

TEST(MooncakeTrace, AnOfficialOneThatIsPresentReadsToItsEnd) {
  if (!std::filesystem::exists(shared_data() / "mooncake")) GTEST_SKIP() << "no trace at " << shared_data();
  const auto samples = all_samples("mooncake-trace", R"({"shrink": 512})", {.data_dir = shared_data()});
  ASSERT_EQ(samples.size(), 2500U);
  std::map<std::string, int64_t> turns;
  for (const Sample& sample : samples) ++turns[sample.recorded->session];
  EXPECT_EQ(turns.size(), 1861U);  // as a plain search over all pairs finds them
  EXPECT_EQ(std::ranges::count_if(turns, [](const auto& session) { return session.second > 1; }), 410);
}

json weka_row() {
  return {{"id", "trace"},
          {"block_size", 64},
          {"hash_id_scope", "local"},
          {"requests",
           {{{"t", 0.0}, {"type", "s"}, {"in", 150}, {"out", 9}, {"hash_ids", {1, 2}}, {"api_time", 3.5}},
            {{"t", 2.0}, {"type", "subagent"}, {"requests", json::array()}},
            {{"t", 10.0}, {"type", "n"}, {"in", 200}, {"out", 8}, {"hash_ids", {1, 2, 3}}},
            {{"t", 30.0}, {"type", "s"}, {"in", 300}, {"out", 7}, {"hash_ids", {1, 2, 3, 4}}, {"think_time", 1.5}}}}};
}

TEST(WekaTrace, ARowIsASessionOfTheMainAgent) {
  json other = weka_row();
  other["id"] = "other";
  const Folder folder("weka/traces.jsonl", weka_row().dump() + "\n" + other.dump() + "\n");
  const auto samples = folder.samples("weka-trace");
  ASSERT_EQ(samples.size(), 6U);
  std::vector<double> thought;
  for (size_t i = 0; i < 3; ++i) thought.push_back(samples[i].recorded->think_s);
  EXPECT_EQ(thought, (std::vector<double>{0, 6.5, 1.5}));
  EXPECT_EQ(samples[2].id, "trace-2");
  EXPECT_EQ(samples[3].recorded->session, "other");
  EXPECT_EQ(words_of(samples[2]), 300);
  EXPECT_EQ(samples[2].generation.max_new_tokens, 7);
  EXPECT_GE(shared_words(samples[0], samples[1]), 128);
  EXPECT_LT(shared_words(samples[0], samples[1]), 140) << "what is behind the blocks is each request's own";
  EXPECT_LT(shared_words(samples[0], samples[3]), 10) << "equal numbers of another session are other blocks";
  other["hash_id_scope"] = "global";
  json first = weka_row();
  first["hash_id_scope"] = "global";
  const Folder global("weka/traces.jsonl", first.dump() + "\n" + other.dump() + "\n");
  const auto same = global.samples("weka-trace");
  EXPECT_GE(shared_words(same[0], same[3]), 128);
}

TEST(BlockTraces, RowsThatSaySomethingElseAreNamed) {
  const auto error = [](const std::string& file, const std::string& workload, const std::string& text) {
    const Folder folder(file, text);
    return error_of([&] { (void)folder.samples(workload); });
  };
  const std::string moon = "mooncake/conversation_trace.jsonl", good = request(0, 600, {0, 1});
  EXPECT_NE(error(moon, "mooncake-trace", good + R"({"timestamp": 1, "input_length": 5, "output_length": 2})")
                .find("conversation_trace.jsonl:2"),
            std::string::npos);
  EXPECT_NE(error(moon, "mooncake-trace", good + request(1, 600, {"a"})).find("conversation_trace.jsonl:2"),
            std::string::npos);
  EXPECT_NE(error(moon, "mooncake-trace", good + request(1, 0, {0})).find("found a prompt of 0 tokens"),
            std::string::npos);
  json row = weka_row();
  row["requests"][2]["t"] = "soon";
  const std::string said = error("weka/traces.jsonl", "weka-trace", weka_row().dump() + "\n" + row.dump());
  EXPECT_NE(said.find("traces.jsonl:2: requests[1]"), std::string::npos) << said;
  row = weka_row();
  row.erase("block_size");
  EXPECT_NE(error("weka/traces.jsonl", "weka-trace", row.dump()).find("traces.jsonl:1"), std::string::npos);
}

}  // namespace
}  // namespace kvarena::datasets
