// Weights against files made by the formats' own libraries.

#include "harness/model/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/model/gguf.h"
#include "harness/model/open_model.h"
#include "tests/harness/model/model_files.h"
#include "tests/support/error_of.h"

namespace kvarena {
namespace {

std::vector<float> read_all(const Checkpoint& checkpoint, const std::string& name) {
  std::vector<float> values(static_cast<size_t>(checkpoint.at(name).elements()));
  checkpoint.read_f32(name, values);
  return values;
}

TEST(Checkpoint, EveryBlockTypeDequantisesBitForBitAsTheReference) {
  const auto blocks = open_checkpoint(testing::golden_file("blocks.gguf"));
  const auto expected = open_checkpoint(testing::golden_file("blocks.safetensors"));
  ASSERT_EQ(blocks->tensors().size(), 16U);
  for (const TensorInfo& info : blocks->tensors()) {
    SCOPED_TRACE(info.name);
    EXPECT_EQ(info.name, "test." + std::string(to_string(info.type)));
    EXPECT_EQ(info.shape, (std::vector<int64_t>{3, 512}));
    const std::vector<float> ours = read_all(*blocks, info.name);
    const std::vector<float> theirs = read_all(*expected, info.name);
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(ours[i]), std::bit_cast<uint32_t>(theirs[i]))
          << "element " << i << ": " << ours[i] << " against " << theirs[i];
    }
  }
}

TEST(Checkpoint, PartsOfASplitFileAreOneCheckpoint) {
  const auto whole = open_checkpoint(testing::golden_file("blocks.gguf"));
  const auto parts = open_checkpoint(testing::golden_file("blocks_split-00001-of-00003.gguf"));
  EXPECT_EQ(parts->files().size(), 3U);
  ASSERT_EQ(parts->tensors().size(), whole->tensors().size());
  for (const TensorInfo& info : whole->tensors())
    EXPECT_EQ(read_all(*parts, info.name), read_all(*whole, info.name)) << info.name;

  const testing::TemporaryFolder folder;
  const auto part = [](const std::string& name) { return "blocks_split-0000" + name + "-of-00003.gguf"; };
  const auto error = [&](const std::string& path) {
    return testing::error_of([&] { (void)open_checkpoint(folder.path() / path); });
  };
  for (const char* name : {"1", "3"}) folder.write(part(name), read_file(testing::golden_file(part(name))));
  EXPECT_NE(error("").find("found no " + part("2") + " beside it"), std::string::npos) << error("");
  EXPECT_NE(error(part("3")).find("found part 3 of 3, expected the first"), std::string::npos) << error(part("3"));
  folder.write(part("2"), read_file(testing::golden_file(part("3"))));
  EXPECT_NE(error("").find("found part 3 of 3, expected part 2 of 3"), std::string::npos) << error("");
  folder.write(part("2"), read_file(testing::golden_file(part("2"))));
  EXPECT_EQ(open_checkpoint(folder.path())->tensors().size(), whole->tensors().size()) << "a folder of one model";
  folder.write("other.gguf", read_file(testing::golden_file(part("1"))));
  EXPECT_NE(error("other.gguf").find("found the first of 3 parts, expected all 3 parts in one folder"),
            std::string::npos)
      << error("other.gguf");
}

TEST(Checkpoint, NamesOfLaterParts) {
  EXPECT_TRUE(is_later_part("a/x-00002-of-00003.gguf"));
  EXPECT_TRUE(is_later_part("-00012-of-00013.gguf"));
  for (const char* other :
       {"x-00001-of-00003.gguf", "x.gguf", "x-00002-of-3.gguf", "x-0002-of-00003.gguf", "x00002-of-00003.gguf",
        "x-00002-of-00003.bin", "00002-of-00003.gguf", "x-000a2-of-00003.gguf"}) {
    EXPECT_FALSE(is_later_part(other)) << other;
  }
}

TEST(Checkpoint, StoredRowsAreTheBlocksOfTheRows) {
  const auto blocks = open_checkpoint(testing::golden_file("blocks.gguf"));
  for (const TensorInfo& info : blocks->tensors()) {
    if (block_size(info.type).elements == 1) continue;
    const std::vector<std::byte> stored = blocks->stored_rows(info.name, 1, 2);
    ASSERT_EQ(std::ssize(stored), info.stored_bytes / 3 * 2) << info.name;
    std::vector<float> values(2 * 512), wanted(values.size());
    convert_to_f32(info.type, stored.data(), std::ssize(values), values.data());
    blocks->read_rows_f32(info.name, 1, 2, wanted);
    EXPECT_EQ(values, wanted) << info.name;
  }
}

TEST(Checkpoint, Mxfp4HasTheNumbersOfTheReference) {
  const auto golden = nlohmann::json::parse(read_file(testing::golden_file("mxfp4.json")));
  const auto text = golden["blocks"].get<std::string>();
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  const auto expected = golden["values"].get<std::vector<float>>();
  ASSERT_EQ(bytes.size(), 8U * 17U);
  std::vector<float> values(expected.size());
  convert_to_f32(TensorType::mxfp4, bytes.data(), std::ssize(values), values.data());
  EXPECT_EQ(values, expected);
}

TEST(Checkpoint, GgufAndSafetensorsOfOneModelAreTheSameTensors) {
  const auto folder = open_checkpoint(testing::golden_file("tiny_llama"));
  const auto file = open_checkpoint(testing::golden_file("tiny_llama.gguf"));
  ASSERT_EQ(folder->tensors().size(), file->tensors().size());
  EXPECT_EQ(folder->files().size(), 2U);
  std::set<TensorType> types;
  for (size_t i = 0; i < folder->tensors().size(); ++i) {
    const TensorInfo& info = folder->tensors()[i];
    types.insert(info.type);
    EXPECT_EQ(file->tensors()[i].name, info.name);
    EXPECT_EQ(file->tensors()[i].shape, info.shape) << info.name;
    EXPECT_EQ(read_all(*file, info.name), read_all(*folder, info.name)) << info.name;
  }
  EXPECT_EQ(types, (std::set<TensorType>{TensorType::f32, TensorType::f16, TensorType::bf16}));
}

TEST(Checkpoint, RowRangesAreSlicesOfTheWhole) {
  for (const char* name : {"tiny_llama", "tiny_llama.gguf", "blocks.gguf"}) {
    const auto checkpoint = open_checkpoint(testing::golden_file(name));
    for (const TensorInfo& info : checkpoint->tensors()) {
      const std::vector<float> whole = read_all(*checkpoint, info.name);
      for (int64_t first = 0; first <= info.rows(); ++first) {
        const int64_t count = std::min<int64_t>(2, info.rows() - first);
        std::vector<float> part(static_cast<size_t>(count * info.columns()));
        checkpoint->read_rows_f32(info.name, first, count, part);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first * info.columns()))
            << info.name << " rows from " << first;
      }
      EXPECT_THROW(checkpoint->read_rows_f32(info.name, info.rows(), 1, {}), InternalError);
    }
  }
}

TEST(Checkpoint, RawBytesAreThereExactlyWhenTheyAreTheElements) {
  const auto file = open_checkpoint(testing::golden_file("tiny_llama.gguf"));
  EXPECT_TRUE(file->raw("model.layers.0.self_attn.q_proj.weight").empty()) << "rows are stored in another order";
  for (const char* name : {"model.layers.0.self_attn.v_proj.weight", "model.norm.weight"}) {
    const auto bytes = file->raw(name);
    const std::vector<float> values = read_all(*file, name);
    ASSERT_EQ(bytes.size(), values.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(bytes.data(), values.data(), bytes.size()), 0);
  }
  EXPECT_TRUE(open_checkpoint(testing::golden_file("blocks.gguf"))->raw("test.q4_1").empty());
}

TEST(Checkpoint, TensorNamesFollowTheReferenceTable) {
  const auto table = nlohmann::json::parse(read_file(testing::golden_file("tensor_names.json")))["names"];
  ASSERT_GT(table.size(), 40U);
  for (const auto& [gguf, hugging_face] : table.items()) {
    EXPECT_EQ(canonical_tensor_name(gguf), hugging_face.get<std::string>());
  }
  const auto families = nlohmann::json::parse(read_file(testing::golden_file("tensor_names.json")))["families"];
  ASSERT_EQ(families.size(), 8U);
  for (const auto& [family, names] : families.items()) {
    for (const auto& [gguf, hugging_face] : names.items()) {
      EXPECT_EQ(canonical_tensor_name(gguf, family), hugging_face.get<std::string>()) << family;
    }
  }
  EXPECT_EQ(canonical_tensor_name("blk.2.ssm_a", "qwen3next"), "model.layers.2.linear_attn.A_log");
  EXPECT_EQ(canonical_tensor_name("blk.2.ssm_dt.bias", "qwen3next"), "model.layers.2.linear_attn.dt_bias");
  EXPECT_EQ(canonical_tensor_name("blk.2.attn_qkv.weight", "qwen3next"),
            "model.layers.2.linear_attn.in_proj_qkv.weight");
  EXPECT_EQ(canonical_tensor_name("blk.2.attn_gate.weight", "qwen3next"),
            "model.layers.2.linear_attn.in_proj_z.weight");
  EXPECT_EQ(canonical_tensor_name("blk.2.attn_sinks.weight", "gpt-oss"), "model.layers.2.self_attn.sinks");
  const auto gemma = nlohmann::json::parse(read_file(testing::golden_file("tensor_names.json")))["gemma3_names"];
  ASSERT_EQ(gemma.size(), 28U);
  for (const auto& [gguf, hugging_face] : gemma.items()) {
    EXPECT_EQ(canonical_tensor_name(gguf, "gemma3"), hugging_face.get<std::string>());
  }
  EXPECT_EQ(canonical_tensor_name("blk.7.attn_k.bias"), "model.layers.7.self_attn.k_proj.bias");
  EXPECT_EQ(canonical_tensor_name("blk.3.exp_probs_b.bias"), "model.layers.3.mlp.gate.e_score_correction_bias");
  for (const char* foreign :
       {"no_dot", "blk.x.attn_q.weight", "blk.1", "blk.1.unheard_of.weight", "v.blk.0.x.weight"}) {
    EXPECT_EQ(canonical_tensor_name(foreign), foreign);
  }
}

TEST(OpenModel, FolderAndGgufOfOneModelAgree) {
  const OpenedModel folder = open_model(testing::golden_file("tiny_llama"));
  const OpenedModel file = open_model(testing::golden_file("tiny_llama.gguf"));
  for (const OpenedModel* model : {&folder, &file}) {
    EXPECT_EQ(model->config.architecture, "llama");
    EXPECT_EQ(model->config.layers, 2);
    EXPECT_EQ(model->config.kv_heads, 2);
    EXPECT_EQ(model->config.group(), 2);
    EXPECT_EQ(model->config.head_dim, 8);
    EXPECT_EQ(model->config.max_position, 128);
    EXPECT_EQ(model->config.rope_theta, 5000.0);
    EXPECT_FALSE(model->config.tie_embeddings);
    EXPECT_EQ(model->config.bos, 0);
    EXPECT_EQ(model->config.eos, (std::vector<int32_t>{1, 2})) << "of both config files, or eos and end of turn";
    EXPECT_EQ(model->config.vocab_size, model->tokenizer->vocab_size());
    EXPECT_EQ(model->tokenizer->special_ids().bos, 0);
    EXPECT_EQ(model->tokenizer->special_ids().eos, 1);
  }
  EXPECT_EQ(folder.config.dtype, kernels::DType::bf16);
  EXPECT_EQ(folder.chat_template.name(), "custom");
  EXPECT_EQ(file.chat_template.name(), "none");
  EXPECT_EQ(choose_chat_template(file, "llama2").name(), "llama2");
  for (const char* text : {"the cat", " attention<|user|>hat</s>", "naïve\n\n  x1", ""}) {
    EXPECT_EQ(folder.tokenizer->encode(text), file.tokenizer->encode(text)) << text;
    EXPECT_EQ(folder.tokenizer->encode(text).front(), 0) << "both begin a prompt with bos";
    EXPECT_EQ(folder.tokenizer->decode(folder.tokenizer->encode(text), {.skip_special = false}),
              "<s>" + std::string(text));
  }
}

TEST(OpenModel, SpecialTokensInATextAreWordsWhereTheCallerSaysSo) {
  const OpenedModel model = open_model(testing::golden_file("tiny_llama"));
  const std::string text = "the <|user|> hat";
  const auto parsed = model.tokenizer->encode(text, {.add_special = false});
  const auto plain = model.tokenizer->encode(text, {.add_special = false, .parse_special = false});
  EXPECT_NE(std::find(parsed.begin(), parsed.end(), 2), parsed.end());
  EXPECT_EQ(std::find(plain.begin(), plain.end(), 2), plain.end());
  EXPECT_EQ(model.tokenizer->decode(plain), text);
  EXPECT_EQ(model.tokenizer->find("<|user|>"), 2);
  EXPECT_EQ(model.tokenizer->token_text(2), "<|user|>");
  EXPECT_EQ(model.tokenizer->find("no such token"), std::nullopt);
}

}  // namespace
}  // namespace kvarena
