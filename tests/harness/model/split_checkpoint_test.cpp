// Tensors that hold several projections, seen one by one.

#include "harness/model/split_checkpoint.h"

#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/golden_model.h"

namespace kvarena {
namespace {

using testing::RandomCheckpoint;
using Values = std::vector<float>;

Values read(const Checkpoint& checkpoint, const std::string& name) {
  Values values(static_cast<size_t>(checkpoint.at(name).elements()));
  checkpoint.read_f32(name, values);
  return values;
}

Values part(const Values& all, size_t begin, size_t end) {
  return {all.begin() + static_cast<ptrdiff_t>(begin), all.begin() + static_cast<ptrdiff_t>(end)};
}

TEST(SplitCheckpoint, CutsFusedProjectionsIntoRows) {
  const testing::GoldenModel phi = testing::golden_model("phi3");  // hidden 64, 4 heads over 2 of 16, feed-forward 64
  const RandomCheckpoint whole = phi.checkpoint();
  const SplitCheckpoint split(whole, phi.config);
  const std::string layer = "model.layers.1.";
  const Values qkv = read(whole, layer + "self_attn.qkv_proj.weight");
  EXPECT_EQ(split.at(layer + "self_attn.k_proj.weight").shape, (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(read(split, layer + "self_attn.q_proj.weight"), part(qkv, 0, 64 * 64));
  EXPECT_EQ(read(split, layer + "self_attn.k_proj.weight"), part(qkv, 64 * 64, 96 * 64));
  EXPECT_EQ(read(split, layer + "self_attn.v_proj.weight"), part(qkv, 96 * 64, 128 * 64));
  const Values gate_up = read(whole, layer + "mlp.gate_up_proj.weight");
  EXPECT_EQ(read(split, layer + "mlp.up_proj.weight"), part(gate_up, 64 * 64, 128 * 64));
  EXPECT_EQ(split.find(layer + "self_attn.qkv_proj.weight"), nullptr);
  EXPECT_EQ(read(split, "model.norm.weight"), read(whole, "model.norm.weight"));
}

TEST(SplitCheckpoint, TurnsAndPartsExpertsOfAlternatingColumns) {
  const testing::GoldenModel golden = testing::golden_model("gpt_oss");  // hidden 64, 4 experts of 32
  const RandomCheckpoint whole = golden.checkpoint();
  const SplitCheckpoint split(whole, golden.config);
  const std::string experts = "model.layers.2.mlp.experts.";
  const Values both = read(whole, experts + "gate_up_proj"), bias = read(whole, experts + "gate_up_proj_bias");
  const Values gate = read(split, experts + "3.gate_proj.weight"), up = read(split, experts + "3.up_proj.weight");
  const Values up_bias = read(split, experts + "3.up_proj.bias");
  ASSERT_EQ(split.at(experts + "3.up_proj.weight").shape, (std::vector<int64_t>{32, 64}));
  for (size_t row = 0; row < 32; ++row) {
    for (size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(gate[row * 64 + i], both[(3 * 64 + i) * 64 + 2 * row]);
      ASSERT_EQ(up[row * 64 + i], both[(3 * 64 + i) * 64 + 2 * row + 1]);
    }
    ASSERT_EQ(up_bias[row], bias[3 * 64 + 2 * row + 1]);
  }
  Values some(2 * 64);
  split.read_rows_f32(experts + "3.up_proj.weight", 7, 2, some);
  EXPECT_EQ(some, part(up, 7 * 64, 9 * 64));
}

TEST(SplitCheckpoint, NamesTensorsThatDoNotFit) {
  testing::GoldenModel phi = testing::golden_model("phi3");
  phi.config.kv_heads = 4;
  const RandomCheckpoint narrow = phi.checkpoint();
  const std::string rows = testing::error_of([&] { (void)SplitCheckpoint(narrow, phi.config); });
  EXPECT_NE(rows.find("model.layers.0.self_attn.qkv_proj.weight: found shape [128, 64], expected 192 rows"),
            std::string::npos)
      << rows;
  const testing::GoldenModel packed = testing::golden_model("gpt_oss_mxfp4");
  testing::TensorShapes shapes = packed.shapes();
  for (auto& [name, shape] : shapes) {
    if (name.ends_with("down_proj_scales")) shape.back() += 1;
  }
  const RandomCheckpoint wrong(shapes, 1);
  const SplitCheckpoint split(wrong, packed.config);
  const std::string bytes =
      testing::error_of([&] { (void)read(split, "model.layers.0.mlp.experts.0.down_proj.weight"); });
  EXPECT_NE(bytes.find("down_proj_scales: found U8 [4, 64, 2], expected 256 bytes of MXFP4"), std::string::npos)
      << bytes;
}

}  // namespace
}  // namespace kvarena
