// The default model, opened in one call.

#include "harness/model/open_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/model/gguf.h"
#include "tests/harness/model/gguf_writer.h"
#include "tests/harness/model/model_files.h"
#include "tests/support/random_entries.h"
#include "tests/support/tiny_adapter.h"
#include "tests/support/tiny_model_files.h"

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

std::string error_of(const std::filesystem::path& path) {
  try {
    (void)open_model(path);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(OpenModel, ADescriptionOfOtherLayersThanTheFilesIsRefusedBeforeAnythingIsReserved) {
  const testing::TemporaryFolder folder;
  testing::write_tiny_model(folder.path(), 3);
  EXPECT_EQ(error_of(folder.path()), "");
  nlohmann::json config = nlohmann::json::parse(read_file(folder.path() / "config.json"));
  const auto layers = config.at("num_hidden_layers").get<int64_t>();
  for (const int64_t others : {int64_t{1'000'000'000}, layers + 1, layers - 1}) {
    config["num_hidden_layers"] = others;
    folder.write("config.json", config.dump());
    EXPECT_NE(error_of(folder.path()).find(fmt::format("tensors of {} layers, expected those of {}", layers, others)),
              std::string::npos)
        << error_of(folder.path());
  }
  config["num_nextn_predict_layers"] = 1;
  folder.write("config.json", config.dump());
  EXPECT_EQ(error_of(folder.path()), "") << "layers that predict further tokens follow the model's own";
}

TEST(OpenModel, AGgufThatRotatesAPartOfAHeadOrDividesByInfinityIsRefused) {
  const testing::TemporaryFolder folder;
  const auto error_with = [&](int64_t rotated, double epsilon) {
    testing::GgufWriter writer;
    writer.text("general.architecture", "llama");
    for (const auto& [key, value] : {std::pair{"block_count", 1},
                                     {"embedding_length", 64},
                                     {"context_length", 128},
                                     {"feed_forward_length", 64},
                                     {"attention.head_count", 4},
                                     {"vocab_size", 100}}) {
      writer.integer(std::string("llama.") + key, value);
    }
    writer.integer("llama.rope.dimension_count", rotated);
    writer.real("llama.attention.layer_norm_rms_epsilon", epsilon);
    writer.write(folder.path() / "m.gguf");
    try {
      (void)read_gguf_config(GgufFile(folder.path() / "m.gguf"));
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(error_with(16, 1e-5), "");
  EXPECT_NE(error_with(3, 1e-5).find("llama.rope.dimension_count: found 3, expected 16"), std::string::npos);
  EXPECT_NE(error_with(16, std::numeric_limits<double>::infinity()).find("rms_norm_eps inf"), std::string::npos);
}

TEST(OpenModel, NamesWhatIsMissing) {
  EXPECT_THROW((void)open_model("no/such/model"), UserError);
  const testing::TemporaryFolder folder;
  EXPECT_THROW((void)open_model(folder.path()), UserError);
}

class AdapterFolder : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::filesystem::path root_ = std::filesystem::temp_directory_path() / fmt::format("kvarena_adapter_{}", ::getpid());
  std::filesystem::path adapter_ = root_ / "adapter", base_ = root_ / "base";
};

TEST_F(AdapterFolder, OpensAsItsBaseWithLowRankProductsAdded) {
  testing::write_tiny_adapter(adapter_, base_, 3);
  const OpenedModel base = open_model(base_), adapted = open_model(adapter_);
  EXPECT_EQ(adapted.config.vocab_size, base.config.vocab_size + 3);
  EXPECT_EQ(adapted.files.size(), base.files.size() + 3);
  const std::string name = "model.layers.1.self_attn.k_proj";
  const TensorInfo& info = adapted.checkpoint->at(name + ".weight");
  const int64_t in = info.columns();
  std::vector<float> own(static_cast<size_t>(info.elements())), plain(own.size());
  base.checkpoint->read_f32(name + ".weight", plain);
  adapted.checkpoint->read_f32(name + ".weight", own);
  const auto a = testing::drawn_numbers(name + ".lora_A.weight", 4 * in, 0.3);
  const auto b = testing::drawn_numbers(name + ".lora_B.weight", info.rows() * 4, 0.3);
  for (int64_t row = 0; row < info.rows(); ++row) {
    for (int64_t c = 0; c < in; ++c) {
      double product = 0;
      for (int64_t k = 0; k < 4; ++k) product += static_cast<double>(b[row * 4 + k]) * a[k * in + c];
      ASSERT_NEAR(own[row * in + c], plain[row * in + c] + 8.0 / 4 * product, 1e-5);
    }
  }
  const TensorInfo& words = adapted.checkpoint->at("model.embed_tokens.weight");
  ASSERT_EQ(words.rows(), base.config.vocab_size + 3);
  std::vector<float> rows(static_cast<size_t>(4 * words.columns())), last(static_cast<size_t>(words.columns()));
  adapted.checkpoint->read_rows_f32(words.name, base.config.vocab_size - 1, 4, rows);
  base.checkpoint->read_rows_f32(words.name, base.config.vocab_size - 1, 1, last);
  const auto added = testing::drawn_numbers("restore_embeddings", 3 * words.columns(), 0.5);
  last.insert(last.end(), added.begin(), added.end());
  EXPECT_EQ(rows, last);
  EXPECT_NE(fingerprint_of(*adapted.checkpoint), fingerprint_of(*base.checkpoint));
}

TEST_F(AdapterFolder, OfAnotherKindIsRefused) {
  const auto expect_refused = [&](const nlohmann::json& changed, const std::string& part) {
    testing::write_tiny_adapter(adapter_, base_, 0, changed);
    try {
      (void)open_model(adapter_);
      ADD_FAILURE() << part;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect_refused({{"peft_type", "IA3"}}, "peft_type");
  expect_refused({{"use_dora", true}}, "use_dora");
  expect_refused({{"bias", "all"}}, "bias");
  expect_refused({{"alpha_pattern", {{"q_proj", 16}}}}, "alpha_pattern");
  expect_refused({{"base_model_name_or_path", (root_ / "nothing").string()}}, "nothing");
}

}  // namespace
}  // namespace kvarena
