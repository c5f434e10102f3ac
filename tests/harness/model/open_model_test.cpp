// The default model, opened in one call.

#include "harness/model/open_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/core/error.h"
#include "tests/harness/model/model_files.h"

namespace kvarena {
namespace {

class DefaultModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(testing::smollm2_file())) GTEST_SKIP() << "no " << testing::smollm2_file();
  }
};

TEST_F(DefaultModel, OpensFromItsFolderWithEverythingTheForwardPassNeeds) {
  const OpenedModel model = open_model(testing::smollm2_file().parent_path());
  EXPECT_EQ(model.config.architecture, "llama");
  EXPECT_EQ(model.config.layers, 30);
  EXPECT_EQ(model.config.hidden_size, 576);
  EXPECT_EQ(model.config.q_heads, 9);
  EXPECT_EQ(model.config.kv_heads, 3);
  EXPECT_EQ(model.config.head_dim, 64);
  EXPECT_EQ(model.config.intermediate_size, 1536);
  EXPECT_EQ(model.config.vocab_size, 49152);
  EXPECT_EQ(model.config.max_position, 8192);
  EXPECT_EQ(model.config.rope_theta, 100000.0);
  EXPECT_FLOAT_EQ(static_cast<float>(model.config.rms_norm_eps), 1e-5F);
  EXPECT_TRUE(model.config.tie_embeddings);
  EXPECT_EQ(model.config.bos, 1);
  EXPECT_EQ(model.config.eos, std::vector<int32_t>{2});
  EXPECT_EQ(model.tokenizer->vocab_size(), 49152);
  EXPECT_EQ(model.chat_template.name(), "smollm2");
  EXPECT_EQ(model.checkpoint->tensors().size(), 272U);
  EXPECT_EQ(model.checkpoint->at("model.layers.7.mlp.down_proj.weight").shape, (std::vector<int64_t>{576, 1536}));
  EXPECT_EQ(model.checkpoint->at("model.layers.7.mlp.down_proj.weight").type, TensorType::q4_1);
}

TEST_F(DefaultModel, RowsReadAloneEqualRowsReadTogether) {
  const OpenedModel model = open_model(testing::smollm2_file());
  for (const char* name : {"model.layers.3.self_attn.q_proj.weight", "model.layers.3.mlp.up_proj.weight"}) {
    const TensorInfo& info = model.checkpoint->at(name);
    std::vector<float> whole(static_cast<size_t>(info.elements()));
    model.checkpoint->read_f32(name, whole);
    std::vector<float> rows(static_cast<size_t>(5 * info.columns()));
    for (const int64_t first : {int64_t{0}, int64_t{31}, int64_t{60}, info.rows() - 5}) {
      model.checkpoint->read_rows_f32(name, first, 5, rows);
      EXPECT_TRUE(std::equal(rows.begin(), rows.end(), whole.begin() + first * info.columns())) << name << " " << first;
    }
  }
}

TEST_F(DefaultModel, SaysWhichTensorIsNearestToAMisspeltOne) {
  const OpenedModel model = open_model(testing::smollm2_file());
  try {
    (void)model.checkpoint->at("model.layers.0.self_attn.q_prj.weight");
    FAIL() << "a tensor that is not there was found";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("model.layers.0.self_attn.q_proj.weight"), std::string::npos)
        << error.what();
  }
}

TEST(OpenModel, NamesWhatIsMissing) {
  EXPECT_THROW((void)open_model("no/such/model"), UserError);
  const testing::TemporaryFolder folder;
  EXPECT_THROW((void)open_model(folder.path()), UserError);
}

}  // namespace
}  // namespace kvarena
