// The corpus through every target, and what a few thousand small accidents make of it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "harness/core/files.h"
#include "harness/core/random.h"
#include "tests/fuzz/fuzz.h"

namespace kvarena::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> corpus(const std::string& target) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(KVARENA_SOURCE_DIR) / "tests/fuzz/corpus" / target)) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

Bytes bytes_of(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

/// Thousands of small files that are written as if they had to last: in memory, where there is such a folder.
class InMemory : public ::testing::Environment {
 public:
  void SetUp() override {
    if (fs::is_directory("/dev/shm")) ::setenv("TMPDIR", "/dev/shm", /*overwrite=*/1);
  }
};
const auto* const kInMemory = ::testing::AddGlobalTestEnvironment(new InMemory);

class Replay : public ::testing::TestWithParam<Target> {};

TEST_P(Replay, CorpusIsReadOrRefused) {
  const auto files = corpus(GetParam().name);
  ASSERT_GE(files.size(), 3U);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.string());
    const std::string text = read_file(file);
    EXPECT_NO_THROW(GetParam().run(bytes_of(text)));
  }
}

TEST_P(Replay, AccidentsAreReadOrRefused) {
  const uint64_t seed = 20261121;
  for (const fs::path& file : corpus(GetParam().name)) {
    const RandomStream random(seed, file.filename().string());
    const std::string whole = read_file(file);
    for (uint64_t trial = 0; trial < 30; ++trial) {
      SCOPED_TRACE(file.string() + ", seed " + std::to_string(seed) + ", trial " + std::to_string(trial));
      const uint64_t draw = trial * 16;
      std::string text = whole;
      if (trial % 3 == 0) text.resize(random.below(whole.size() + 1, draw));
      for (uint64_t i = 1; i <= 1 + trial % 4 && !text.empty(); ++i) {
        text[random.below(text.size(), draw + i)] = static_cast<char>(random.below(256, draw + i + 8));
      }
      EXPECT_NO_THROW(GetParam().run(bytes_of(text)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, ::testing::ValuesIn(targets()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kvarena::fuzz
