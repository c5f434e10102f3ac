// Weights that stay as their checkpoint stores them: the bits of float32 weights, in the file's memory.

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>

#include "harness/core/random.h"
#include "harness/model/gguf.h"
#include "harness/model/open_model.h"
#include "kernels/common/cpu_path.h"
#include "tests/support/default_model.h"
#include "tests/support/error_of.h"
#include "tests/support/golden_model.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using testing::RandomCheckpoint;
using testing::TensorShapes;

constexpr TransformerOptions kF32{.weights = kernels::DType::f32, .cache = kernels::DType::f32};
constexpr TransformerOptions kStored{.weights = std::nullopt, .cache = kernels::DType::f32};

/// Where a block's f16 scales lie, and how large its weights are under scales of one.
struct BlockShape {
  TensorType type;
  std::vector<size_t> scales;
  float largest;
};
std::vector<BlockShape> block_shapes() {
  return {{TensorType::q4_0, {0}, 8},          {TensorType::q4_1, {0, 2}, 15},      {TensorType::q5_0, {0}, 16},
          {TensorType::q5_1, {0, 2}, 31},      {TensorType::q8_0, {0}, 128},        {TensorType::q2_k, {80, 82}, 45},
          {TensorType::q3_k, {108}, 128},      {TensorType::q4_k, {0, 2}, 63 * 15}, {TensorType::q5_k, {0, 2}, 63 * 31},
          {TensorType::q6_k, {208}, 32 * 128}, {TensorType::iq4_nl, {0}, 127},      {TensorType::iq4_xs, {0}, 32 * 127},
          {TensorType::mxfp4, {}, 6}};
}
BlockShape shape_of(TensorType type) {
  for (const BlockShape& shape : block_shapes()) {
    if (shape.type == type) return shape;
  }
  return {};
}

/// A random checkpoint whose matrices are of the types that `type_of` says, where rows are whole blocks.
class BlockCheckpoint final : public Checkpoint {
 public:
  BlockCheckpoint(const TensorShapes& shapes, const std::function<TensorType(const std::string& name)>& type_of)
      : floats_(shapes, 1), infos_(floats_.tensors()) {
    for (TensorInfo& info : infos_) {
      const TensorType type = type_of(info.name);
      info.stored_bytes = info.elements() * 4;
      if (info.shape.size() != 2 || info.columns() % block_size(type).elements != 0) continue;
      info.type = type;
      blocks_[info.name] = block_size(type).elements == 1 ? halves(info) : random_blocks(info);
      info.stored_bytes = std::ssize(blocks_[info.name]);
    }
  }

  [[nodiscard]] const std::vector<TensorInfo>& tensors() const override { return infos_; }
  [[nodiscard]] const std::filesystem::path& path() const override { return floats_.path(); }
  [[nodiscard]] std::vector<std::filesystem::path> files() const override { return {}; }
  [[nodiscard]] std::span<const std::byte> raw(std::string_view) const override { return {}; }

  [[nodiscard]] int64_t matrix_bytes() const {
    int64_t bytes = 0;
    for (const TensorInfo& info : infos_) bytes += info.shape.size() == 2 ? info.stored_bytes : 0;
    return bytes;
  }

 private:
  [[nodiscard]] std::vector<std::byte> halves(const TensorInfo& info) const {
    std::vector<float> numbers(static_cast<size_t>(info.elements()));
    floats_.read_f32(info.name, numbers);
    std::vector<std::byte> bytes(2 * numbers.size());
    const kernels::DType dtype = info.type == TensorType::f16 ? kernels::DType::f16 : kernels::DType::bf16;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const uint16_t half = kernels::f32_to_half(numbers[i], dtype);
      std::memcpy(&bytes[2 * i], &half, sizeof half);
    }
    return bytes;
  }
  static std::vector<std::byte> random_blocks(const TensorInfo& info) {
    const BlockSize size = block_size(info.type);
    const BlockShape shape = shape_of(info.type);
    const RandomStream stream(2, info.name);
    std::vector<std::byte> bytes(static_cast<size_t>(info.elements() / size.elements * size.bytes));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(stream.below(256, i));
    for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(size.bytes)) {
      if (info.type == TensorType::mxfp4) bytes[block] = static_cast<std::byte>(120 + stream.below(4, block));
      for (const size_t at : shape.scales) {
        const double u = stream.uniform(bytes.size() + block + at) - 0.5;
        const uint16_t half = kernels::f32_to_f16(static_cast<float>(0.4 * u) / shape.largest);
        std::memcpy(&bytes[block + at], &half, sizeof half);
      }
    }
    return bytes;
  }
  void convert_rows(size_t index, int64_t first, int64_t count, float* out) const override {
    const TensorInfo& info = infos_[index];
    if (!blocks_.contains(info.name)) {
      return floats_.read_rows_f32(info.name, first, count, {out, static_cast<size_t>(count * info.columns())});
    }
    convert_to_f32(info.type, copy_rows(index, first, count).data(), count * info.columns(), out);
  }
  [[nodiscard]] std::vector<std::byte> copy_rows(size_t index, int64_t first, int64_t count) const override {
    const std::vector<std::byte>& all = blocks_.at(infos_[index].name);
    const int64_t row = std::ssize(all) / infos_[index].rows();
    return {all.begin() + first * row, all.begin() + (first + count) * row};
  }

  RandomCheckpoint floats_;
  std::vector<TensorInfo> infos_;
  std::map<std::string, std::vector<std::byte>> blocks_;
};

/// Logits of a prompt, then of steps beside another sequence.
std::vector<float> all_logits(Transformer& model, const std::vector<int32_t>& prompt) {
  std::vector<float> all;
  KvCache one = model.make_cache(), two = model.make_cache();
  const auto run = [&](const std::vector<SequencePass>& passes) {
    const std::span<const float> logits = model.forward(passes);
    all.insert(all.end(), logits.begin(), logits.end());
  };
  run({{.tokens = prompt, .cache = &one, .logits = LogitsRows::all}});
  const std::span<const int32_t> tokens = prompt;
  run({{.tokens = tokens.subspan(0, 1), .cache = &one}});
  run({{.tokens = tokens.subspan(1, 1), .cache = &one}, {.tokens = tokens.subspan(0, 5), .cache = &two}});
  run({{.tokens = tokens.subspan(2, 1), .cache = &one}, {.tokens = tokens.subspan(5, 1), .cache = &two}});
  return all;
}

void expect_same_logits(Transformer& stored, Transformer& floats, const std::vector<int32_t>& prompt) {
  const std::vector<float> ours = all_logits(stored, prompt), wanted = all_logits(floats, prompt);
  ASSERT_EQ(ours.size(), wanted.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_TRUE(std::isfinite(wanted[i])) << i;
    ASSERT_EQ(std::bit_cast<uint32_t>(ours[i]), std::bit_cast<uint32_t>(wanted[i])) << "logit " << i;
  }
}

/// The paths on which all forms are summed in one order.
std::vector<kernels::CpuPath> paths_of_one_order() {
  std::vector<kernels::CpuPath> paths = kernels::available_cpu_paths();
  std::erase(paths, kernels::CpuPath::amx);
  return paths;
}

void expect_f32_bits(const ModelConfig& config, const Checkpoint& checkpoint, const std::vector<int32_t>& prompt) {
  Transformer floats(config, checkpoint, kF32), stored(config, checkpoint, kStored);
  EXPECT_EQ(stored.weight_numbers(), floats.weight_numbers());
  for (const kernels::CpuPath path : paths_of_one_order()) {
    SCOPED_TRACE(name_of(path));
    const kernels::ScopedCpuPath forced(path);
    expect_same_logits(stored, floats, prompt);
  }
}

TEST(AsStored, EveryTypeHasTheBitsOfF32AndTheBytesOfTheFile) {
  ModelConfig config = testing::tiny_config();
  config.layers = 2;
  config.hidden_size = config.intermediate_size = 256;
  config.head_dim = 64;
  for (const BlockShape& shape : block_shapes()) {
    SCOPED_TRACE(to_string(shape.type));
    // Values of another type than queries and keys, as mixtures have them.
    const BlockCheckpoint checkpoint(testing::llama_tensors(config), [&](const std::string& name) {
      return name.find("v_proj") == std::string::npos ? shape.type : TensorType::q6_k;
    });
    expect_f32_bits(config, checkpoint, testing::tiny_prompt(14));
    const Transformer stored(config, checkpoint, kStored);
    EXPECT_GE(stored.weight_bytes(), checkpoint.matrix_bytes());
    EXPECT_LE(static_cast<double>(stored.weight_bytes()), 1.02 * static_cast<double>(checkpoint.matrix_bytes()));
  }
}

TEST(AsStored, FamiliesHaveTheBitsOfF32) {
  for (const char* kind : {"llama_biased", "qwen3_moe", "gemma3", "deepseek_v3", "phi3", "glm4", "mixtral", "llama4"}) {
    SCOPED_TRACE(kind);
    const testing::GoldenModel golden = testing::golden_model(kind);
    const BlockCheckpoint checkpoint(golden.shapes(), [](const std::string& name) {
      return name.find("q_proj") == std::string::npos ? TensorType::q4_1 : TensorType::q8_0;
    });
    expect_f32_bits(golden.config, checkpoint, golden.fixture["prompt"].get<std::vector<int32_t>>());
  }
}

TEST(AsStored, ExpertsInMxfp4HaveTheBitsOfF32) {
  const testing::GoldenModel golden = testing::golden_model("gpt_oss_mxfp4");
  const RandomCheckpoint checkpoint = golden.checkpoint();
  expect_f32_bits(golden.config, checkpoint, golden.fixture["prompt"].get<std::vector<int32_t>>());
  EXPECT_LT(Transformer(golden.config, checkpoint, kStored).weight_bytes(),
            Transformer(golden.config, checkpoint, {}).weight_bytes());
}

TEST(AsStored, PlainFloatsKeepTheirTypes) {
  const ModelConfig config = testing::tiny_config();
  const BlockCheckpoint checkpoint(testing::llama_tensors(config), [](const std::string& name) {
    return name.find("k_proj") == std::string::npos ? TensorType::bf16 : TensorType::f16;
  });
  expect_f32_bits(config, checkpoint, testing::tiny_prompt(40));
  EXPECT_EQ(Transformer(config, checkpoint, kStored).weight_bytes(),
            Transformer(config, checkpoint, kF32).weight_bytes() / 2);
}

TEST(AsStored, TheDefaultModelHasTheBitsOfF32) {
  if (!std::filesystem::exists(testing::default_model())) GTEST_SKIP() << "run scripts/setup";
  const OpenedModel opened = open_model(testing::default_model());
  Transformer floats(opened.config, *opened.checkpoint, kF32), stored(opened.config, *opened.checkpoint, kStored);
  const std::vector<int32_t> prompt = opened.tokenizer->encode("Rivers of France: the Loire, the Seine and");
  expect_same_logits(stored, floats, prompt);
  EXPECT_LE(stored.weight_bytes(), static_cast<int64_t>(std::filesystem::file_size(opened.files.front())));
}

TEST(AsStored, RecurrentLayersNeedFloats) {
  const testing::GoldenModel golden = testing::golden_model("qwen3_next");
  const std::string refusal = testing::error_of([&] { Transformer(golden.config, golden.checkpoint(), kStored); });
  EXPECT_NE(refusal.find("found recurrent layers, and a dtype \"as stored\""), std::string::npos) << refusal;
}

TEST(AsStored, NamesOfTypes) {
  EXPECT_FALSE(options_named("as stored", "").weights.has_value());
  EXPECT_EQ(options_named("as stored", "").cache, kernels::DType::f32);
  EXPECT_EQ(options_named("as stored", "bf16").cache, kernels::DType::bf16);
  EXPECT_EQ(options_named("f16", "").weights, kernels::DType::f16);
  EXPECT_EQ(options_named("f16", "").cache, kernels::DType::f16);
  EXPECT_EQ(options_named("bf16", "f32").cache, kernels::DType::f32);
}

}  // namespace
}  // namespace kvarena
