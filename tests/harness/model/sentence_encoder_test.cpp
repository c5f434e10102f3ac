// Embeddings against sentence-transformers' (tests/golden/sentence_embeddings.py).

#include "harness/model/sentence_encoder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "tests/support/default_model.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

class SentenceEncoderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::installed_models() / "all-minilm-l6-v2";
    if (!fs::exists(folder_)) GTEST_SKIP() << folder_ << " is absent; scripts/setup fetches it";
  }
  fs::path folder_;
};

TEST_F(SentenceEncoderTest, EqualsSentenceTransformers) {
  const SentenceEncoder encoder(folder_);
  const auto golden =
      nlohmann::json::parse(read_file(fs::path(KVARENA_SOURCE_DIR) / "tests/golden/sentence_embeddings.json"));
  for (const auto& row : golden["rows"]) {
    const auto text = row["text"].get<std::string>();
    const auto expected = row["embedding"].get<std::vector<float>>();
    const std::vector<float> found = encoder.embed(text);
    ASSERT_EQ(found.size(), expected.size());
    // Six layers in float32, each component at most 1: sums in another order differ in the sixth digit.
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-6) << text << " at " << i;
  }
}

TEST_F(SentenceEncoderTest, ReadsTheFirst256WordPieces) {
  const SentenceEncoder encoder(folder_);
  std::string fits;
  for (int i = 0; i < 254; ++i) fits += "boat ";
  EXPECT_FALSE(encoder.cuts(fits));
  EXPECT_TRUE(encoder.cuts(fits + "boat"));
  EXPECT_EQ(encoder.embed(fits), encoder.embed(fits + "and much that is never read"));
}

TEST_F(SentenceEncoderTest, AFolderOfAnotherModelIsRefused) {
  const fs::path folder = fs::path(::testing::TempDir()) / "kvarena-no-encoder";
  fs::create_directories(folder);
  EXPECT_THROW(SentenceEncoder{folder}, UserError);
  write_file(folder / "config.json", R"({"model_type": "llama"})");
  EXPECT_THROW(SentenceEncoder{folder}, UserError);
  write_file(folder / "config.json",
             R"({"model_type": "bert", "hidden_act": "gelu", "hidden_size": 10, "num_attention_heads": 3})");
  EXPECT_THROW(SentenceEncoder{folder}, UserError);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace kvarena
