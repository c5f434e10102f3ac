// Prompts that were read, as files: found again with the bits that reading gives, bounded, never trusted. What every
// method makes of such a prompt is in the conformance suite.

#include "harness/engine/stored/prefill_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "harness/core/files.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/stored/stored_prefill.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kAnyBytes = int64_t{1} << 30;

class PrefillFolderTest : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path path() const { return scratch_.path() / "prefills"; }
  [[nodiscard]] PrefillFolder folder(int64_t most_bytes = kAnyBytes, const std::string& computer = "this one") const {
    return {path(), computer, most_bytes, /*least_seconds=*/0};
  }
  [[nodiscard]] std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    if (!fs::exists(path())) return all;
    for (const auto& file : fs::directory_iterator(path())) all.push_back(file.path());
    std::ranges::sort(all);
    return all;
  }
  /// Reads a prompt of the folder, which must be as the model reads it.
  void expect_exact(const PrefillFolder& folder, uint64_t seed, const Needs& needs) {
    const std::vector<int32_t> tokens = testing::tiny_prompt(200, seed);
    const Prefill found = folder.read(model_, tokens, needs, facts_);
    const Prefill read = prefill(model_, tokens, needs, kPrefillChunk, facts_);
    EXPECT_EQ(store_prefill(model_, found), store_prefill(model_, read));
    EXPECT_EQ(found.tokens, tokens);
    EXPECT_EQ(found.cache.bytes(), read.cache.bytes());
    EXPECT_EQ(found.cache.prompt_length, read.cache.prompt_length);
    ASSERT_EQ(found.observations.size(), read.observations.size());
    for (size_t layer = 0; layer < read.observations.size() && needs.output_projection; ++layer) {
      EXPECT_EQ(found.observations[layer].output_projection(), read.observations[layer].output_projection());
    }
  }

  testing::TemporaryFolder scratch_;
  Transformer model_ = testing::tiny_model(1);
  std::shared_ptr<const ModelFacts> facts_ = model_facts(model_);
  const Needs all_{.prompt_attention = true,
                   .window = 16,
                   .hidden = true,
                   .output_projection = true,
                   .future = 4,
                   .query_moments = {0, 8},
                   .taps = {Tap::low, Tap::last},
                   .reconstructions = {{.chunk = 64}, {.chunk = 64, .sinks = 4, .output_norm = true}}};
};

TEST_F(PrefillFolderTest, FindsAPromptWithEverythingThatWasObserved) {
  for (int turn = 0; turn < 3; ++turn) {
    expect_exact(folder(), 1, all_);
    EXPECT_EQ(files().size(), 1U);
  }
}

TEST_F(PrefillFolderTest, OtherTokensNeedsAndComputersAreOtherPrompts) {
  expect_exact(folder(), 1, {.window = 16});
  expect_exact(folder(), 2, {.window = 16});
  expect_exact(folder(), 1, {.window = 17});
  expect_exact(folder(kAnyBytes, "another"), 1, {.window = 16});
  EXPECT_EQ(files().size(), 4U);
}

TEST_F(PrefillFolderTest, ADamagedOrForeignFileIsReadAnew) {
  expect_exact(folder(), 1, all_);
  const fs::path file = files().front();
  const std::string whole = read_file(file);
  std::string flipped = whole;
  flipped[whole.size() / 3] ^= 1;
  expect_exact(folder(), 2, all_);
  const fs::path other = files().front() == file ? files().back() : files().front();
  for (const std::string& content : {flipped, whole.substr(0, whole.size() / 2), std::string(), read_file(other)}) {
    std::ofstream(file, std::ios::binary) << content;
    expect_exact(folder(), 1, all_);
    EXPECT_EQ(read_file(file), whole) << "written again";
  }
}

TEST_F(PrefillFolderTest, TheLongestUnusedGoesFirstAndNoneOfThisRun) {
  expect_exact(folder(), 1, {});
  const auto bytes = static_cast<int64_t>(fs::file_size(files().front()));
  const fs::path first = files().front();
  expect_exact(folder(), 2, {});
  fs::last_write_time(first, fs::file_time_type::clock::now() - std::chrono::hours(1));

  const PrefillFolder run = folder(2 * bytes);
  expect_exact(run, 3, {});
  EXPECT_EQ(files().size(), 2U);
  EXPECT_FALSE(fs::exists(first));
  expect_exact(run, 4, {});
  const std::vector<fs::path> own = files();
  expect_exact(run, 5, {});
  EXPECT_EQ(files(), own) << "there is room for two";
}

TEST_F(PrefillFolderTest, AFolderThatCannotBeWrittenCostsNothing) {
  std::ofstream(path()) << "a file";
  expect_exact(folder(), 1, all_);
}

}  // namespace
}  // namespace kvarena
