// MInference: what the authors' code chooses (tests/golden/sparse_prefill.py), prompts with fewer diagonals than
// chosen.

#include <filesystem>
#include <set>

#include "harness/core/error.h"
#include "tests/methods/prefill/prefill_support.h"
#include "tests/support/temporary_folder.h"

namespace kvarena {
namespace {

using nlohmann::json;
using Request = testing::PrefillRequest;

using Entries = std::vector<std::vector<std::set<int64_t>>>;  // [heads][blocks of queries]

/// Entries that a case names: blocks of 64 keys, and columns.
Entries entries_of(const json& one) {
  Entries all;
  for (const json& head : one.at("heads")) {
    all.emplace_back();
    for (const json& row : head) {
      std::set<int64_t>& entries = all.back().emplace_back();
      for (const int64_t first : row.at(0)) {
        for (int64_t i = 0; i < 64; ++i) entries.insert(first + i);
      }
      for (const int64_t column : row.at(1)) entries.insert(column);
    }
  }
  return all;
}

TEST(MInference, ChoosesColumnsAndDiagonalsAsTheAuthorsCode) {
  const json cases = testing::golden("sparse_prefill/minference.json")["cases"];
  ASSERT_GE(cases.size(), 3U);
  for (const json& one : cases) {
    SCOPED_TRACE(one.at("method").dump());
    const Entries heads = entries_of(one);
    testing::expect_attends(testing::golden_request(one), [&](int64_t head, int64_t row, int64_t entry) {
      return heads[head][row / 64].contains(entry);
    });
  }
}

TEST(MInference, ReadsSizesAndKindsByHeadFromAFile) {
  const json one = testing::golden("sparse_prefill/minference.json")["cases"][0];
  const json sizes = {"vertical_and_slash", one["method"]["vertical"], one["method"]["slash"], 0.9};
  json layer = {{"0", sizes}, {"2", sizes}, {"3", sizes}};
  layer["1"] = {"stream_llm", 20, 90, 0.9};
  const testing::TemporaryFolder folder;
  const auto file = folder.write("pattern.json", json::array({layer}).dump());
  const Entries heads = entries_of(one);
  json asked = one;
  asked["method"] = {{"name", "minference"}, {"pattern", file.string()}};
  testing::expect_attends(testing::golden_request(asked), [&](int64_t head, int64_t row, int64_t entry) {
    return head == 1 ? entry < 20 || entry > row - 90 : heads[head][row / 64].contains(entry);
  });
}

TEST(MInference, ReadsTheFileOnce) {
  json layer;
  for (const char* head : {"0", "1", "2", "3"}) layer[head] = {"vertical_and_slash", 30, 60, 0.9};
  const testing::TemporaryFolder folder;
  const auto file = folder.write("pattern.json", json::array({layer}).dump());
  Request request({{"name", "minference"}, {"pattern", file.string()}}, 200, 3);
  std::filesystem::remove(file);
  LayerCache& cache = request.cache.layers[0];
  cache.view.reset();
  LayerContext again{.layer = 0, .layers = 1, .cache = cache, .activity = request.activity, .prompt_tokens = 200};
  request.method->select(again, request.queries());
  EXPECT_NE(cache.view, nullptr);
}

TEST(MInference, NamesTheHeadThatAFileDoesNotHave) {
  const json head = {"block_sparse", 100, 1, 0.9};
  const testing::TemporaryFolder folder;
  const auto file = folder.write("pattern.json", json::array({json{{"0", head}}}).dump());
  try {
    const Request request({{"name", "minference"}, {"pattern", file.string()}}, 200, 3);
    FAIL() << "was not refused";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("layer 0, head 0"), std::string::npos) << error.what();
  }
}

TEST(MInference, LeavesAPromptWithFewerDiagonalsAsItIs) {
  const json spec = {{"name", "minference"}, {"vertical", 30}, {"slash", 200}};
  EXPECT_EQ(Request(spec, 200, 3).cache.layers[0].view, nullptr);
  EXPECT_NE(Request(spec, 201, 3).cache.layers[0].view, nullptr);
}

}  // namespace
}  // namespace kvarena
