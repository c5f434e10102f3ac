// Errors of models, and the memory that loading takes.

#include "harness/model/transformer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/core/error.h"
#include "harness/model/feed_forward.h"
#include "tests/support/golden_rows.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using testing::golden_model;
using testing::RandomCheckpoint;
using testing::TensorShapes;
using testing::tiny_config;

/// Expects a UserError whose message names all of `words`.
void expect_refused(const ModelConfig& config, const Checkpoint& checkpoint, const std::vector<std::string>& words) {
  try {
    const Transformer model(config, checkpoint, {});
    FAIL() << "accepted";
  } catch (const UserError& error) {
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << " in: " << error.what();
    }
  }
}

/// The tensors of a golden model with one taken out, or with another shape.
TensorShapes without(TensorShapes shapes, const std::string& name) {
  EXPECT_EQ(std::erase_if(shapes, [&](const auto& tensor) { return tensor.first == name; }), 1U) << name;
  return shapes;
}
TensorShapes reshaped(TensorShapes shapes, const std::string& name, const std::vector<int64_t>& shape) {
  shapes = without(std::move(shapes), name);
  shapes.emplace_back(name, shape);
  return shapes;
}

TEST(Loading, EveryMissingTensorIsNamed) {
  for (const char* kind : {"llama_biased", "qwen3", "qwen3_moe", "gemma3", "deepseek_v3", "qwen3_next", "qwen3_5"}) {
    const testing::GoldenModel golden = golden_model(kind);
    for (const auto& [name, shape] : golden.shapes()) {
      if (name.find("experts.") != std::string::npos && name.find("experts.7.") == std::string::npos) continue;
      expect_refused(golden.config, RandomCheckpoint(without(golden.shapes(), name), 1),
                     {"random checkpoint", "no tensor \"" + name + "\""});
    }
  }
}

TEST(Loading, EveryShapeThatDisagreesIsNamedWithBothShapes) {
  for (const char* kind : {"llama_biased", "qwen3", "qwen3_moe", "gemma3", "deepseek_v3", "qwen3_next", "qwen3_5"}) {
    const testing::GoldenModel golden = golden_model(kind);
    for (const auto& [name, shape] : golden.shapes()) {
      if (name.find("experts.") != std::string::npos && name.find("experts.7.") == std::string::npos) continue;
      std::vector<int64_t> other = shape;
      other.back() += 1;
      const std::string expected = fmt::format("[{}] from the model's config", fmt::join(shape, ", "));
      expect_refused(golden.config, RandomCheckpoint(reshaped(golden.shapes(), name, other), 1),
                     {"tensor " + name, fmt::format("[{}]", fmt::join(other, ", ")), expected});
    }
  }
}

TEST(Loading, AWeightThatTheConfigHasNoPlaceForIsRefused) {
  const ModelConfig config = tiny_config();
  for (const char* name : {"model.layers.1.self_attn.q_proj.bias", "model.layers.2.self_attn.q_norm.weight",
                           "model.layers.0.mlp.experts.0.up_proj.weight"}) {
    TensorShapes shapes = testing::llama_tensors(config);
    shapes.emplace_back(name, std::vector<int64_t>{32});
    expect_refused(config, RandomCheckpoint(shapes, 1), {name, "a llama of this config does not have"});
  }
  TensorShapes harmless = testing::llama_tensors(config);
  harmless.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq", std::vector<int64_t>{16});
  harmless.emplace_back("model.layers.3.anything.weight", std::vector<int64_t>{16});  // past the last layer
  EXPECT_NO_THROW(Transformer(config, RandomCheckpoint(harmless, 1), {}));
}

/// A checkpoint with one value that is no number.
class Spoilt final : public Checkpoint {
 public:
  Spoilt(const RandomCheckpoint& good, std::string name, float value)
      : good_(&good), name_(std::move(name)), value_(value) {}

  [[nodiscard]] const std::vector<TensorInfo>& tensors() const override { return good_->tensors(); }
  [[nodiscard]] const std::filesystem::path& path() const override { return good_->path(); }
  [[nodiscard]] std::vector<std::filesystem::path> files() const override { return {}; }
  [[nodiscard]] std::span<const std::byte> raw(std::string_view) const override { return {}; }

 private:
  void convert_rows(size_t index, int64_t first, int64_t count, float* out) const override {
    const TensorInfo& info = tensors()[index];
    good_->read_rows_f32(info.name, first, count, {out, static_cast<size_t>(count * info.columns())});
    if (info.name == name_ && first + count == info.rows()) out[count * info.columns() - 1] = value_;
  }

  const RandomCheckpoint* good_;
  std::string name_;
  float value_;
};

TEST(Loading, AValueThatIsNoNumberIsNamedWithItsTensor) {
  const testing::GoldenModel golden = golden_model("deepseek_v3");
  const RandomCheckpoint good = golden.checkpoint();
  for (const TensorInfo& info : good.tensors()) {
    if (info.name.find("experts.") != std::string::npos && info.name.find("experts.3.") == std::string::npos) continue;
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      expect_refused(golden.config, Spoilt(good, info.name, value),
                     {"tensor " + info.name, fmt::format("at element {}", info.elements() - 1)});
    }
  }
}

TEST(Loading, HoldsNoMoreThanOneTensorBesideThePackedWeights) {
  for (const char* kind : {"llama2", "qwen3_moe", "deepseek_v2"}) {
    const testing::GoldenModel golden = golden_model(kind);
    const RandomCheckpoint checkpoint = golden.checkpoint();
    int64_t largest = 0;
    for (const TensorInfo& info : checkpoint.tensors()) largest = std::max(largest, info.elements());
    const Transformer model(golden.config, checkpoint, {});
    EXPECT_LE(checkpoint.largest_read, largest) << kind;
  }
  // A large one is read in pieces.
  ModelConfig config = tiny_config();
  config.layers = 1;
  config.vocab_size = 20000;
  const RandomCheckpoint checkpoint(testing::llama_tensors(config), 1);
  const Transformer model(config, checkpoint, {});
  EXPECT_LE(checkpoint.largest_read, 512 * config.hidden_size);
}

TEST(Loading, AHeadThatDoesNotFillCellsIsRefused) {
  ModelConfig config = tiny_config();
  config.head_dim = 24;
  expect_refused(config, RandomCheckpoint(testing::llama_tensors(config), 1),
                 {"tiny", "head_dim 24", "multiple of 16"});
}

TEST(Forward, TokensOutsideTheVocabularyAndTheWindowAreRefusedAndNothingChanges) {
  ModelConfig config = tiny_config();
  config.max_position = 16;
  Transformer model(config, RandomCheckpoint(testing::llama_tensors(config), 1), {});
  KvCache cache = model.make_cache();
  const auto feed = [&](const std::vector<int32_t>& tokens) {
    const SequencePass pass{.tokens = tokens, .cache = &cache};
    (void)model.forward({&pass, 1});
  };
  const auto refused = [&](const std::vector<int32_t>& tokens, const std::string& found, const std::string& expected) {
    const int64_t length = cache.length;
    try {
      feed(tokens);
      FAIL() << "accepted";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(found), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
    EXPECT_EQ(cache.length, length);
    EXPECT_EQ(cache.layers[0].entries(0), length);
  };
  refused({5, 128}, "token id 128", "0 to 127");
  refused({-1}, "token id -1", "0 to 127");
  refused(std::vector<int32_t>(17, 3), "17 tokens", "at most 16, the model's window");
  feed(std::vector<int32_t>(16, 3));
  refused({3}, "17 tokens", "at most 16, the model's window");
}

/// Keys of the first layer depend on token and position alone, so keys of one repeated token are the first one,
/// rotated.
TEST(Rotation, TurnsAStoredKeyToAnyPosition) {
  for (const char* kind :
       {"llama31", "llama_yarn", "longchat_linear", "qwen3", "deepseek_v2", "deepseek_v3_flat", "gemma3"}) {
    SCOPED_TRACE(kind);
    Transformer model = golden_model(kind).transformer(testing::kExact);
    const std::vector<int32_t> tokens(40, 17);
    KvCache cache = model.make_cache();
    const SequencePass pass{.tokens = tokens, .cache = &cache};
    (void)model.forward({&pass, 1});
    const int64_t d = model.layer_shape(0).head_dim;
    const std::vector<double>& inverse = model.rope(0).inverse;
    ASSERT_EQ(static_cast<int64_t>(inverse.size()), d / 2);
    std::vector<float> keys(tokens.size() * static_cast<size_t>(d));
    cache.layers[0].tail().read(0, keys.data(), nullptr);
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t c = 0; c < d / 2; ++c) {
        const double angle = static_cast<double>(i) * inverse[c];
        const double turned = keys[c] * std::cos(angle) - keys[c + d / 2] * std::sin(angle);
        EXPECT_NEAR(keys[i * d + c], turned, 1e-4) << "position " << i << " channel " << c;
      }
    }
  }
}

TEST(Rotation, LayersWithAWindowMayBeRotatedApart) {
  const Transformer model = golden_model("gemma3_linear").transformer(testing::kExact);
  for (int64_t i = 0; i < 16; ++i) {  // heads of 32
    const auto power = [&](double theta) { return static_cast<float>(std::pow(theta, static_cast<double>(i) / 16)); };
    EXPECT_EQ(model.rope(0).inverse[i], 1.0F / power(1e4));
    EXPECT_EQ(model.rope(1).inverse[i], 1.0F / power(1e6) / 8);
    EXPECT_EQ(model.rope(2).inverse[i], 1.0F / power(1e4));
  }
}

TEST(Embedding, IsScaledByARootRoundedToItsOwnType) {
  const testing::GoldenModel golden = golden_model("gemma3");  // hidden_size 48: 6.9282
  const std::vector<int32_t> token{5};
  for (const auto& [dtype, scale] : {std::pair{kernels::DType::f32, 6.92820323F}, {kernels::DType::bf16, 6.9375F}}) {
    ModelConfig config = golden.config;
    std::vector<float> scaled(48), plain(48);
    Transformer(config, golden.checkpoint(), {.weights = dtype}).embed(token, scaled.data());
    config.embedding_scale = 1;
    Transformer(config, golden.checkpoint(), {.weights = dtype}).embed(token, plain.data());
    for (size_t c = 0; c < 48; ++c) EXPECT_EQ(scaled[c], plain[c] * scale) << c;
  }
}

TEST(ChooseExperts, FollowsTheRuleOfEachFamily) {
  const std::vector<float> logits = {0.1F, 2.0F, -1.0F, 1.9F, 0.5F, 1.8F, -2.0F, 1.7F};
  ExpertConfig config{.experts = 8, .experts_per_token = 3, .intermediate_size = 1};
  const auto numbers = [&](std::span<const float> correction = {}) {
    std::vector<int64_t> list;
    for (const ChosenExpert& chosen : choose_experts(config, logits, correction)) list.push_back(chosen.expert);
    return list;
  };
  EXPECT_EQ(numbers(), (std::vector<int64_t>{1, 3, 5}));
  config.groups = 4;  // {0, 1}, {2, 3}, {4, 5}, {6, 7}; best members 2.0, 1.9, 1.8, 1.7
  config.groups_per_token = 2;
  EXPECT_EQ(numbers(), (std::vector<int64_t>{0, 1, 3}));
  config.sigmoid_scores = true;  // groups judged by both members: {4, 5}, then {0, 1}
  EXPECT_EQ(numbers(), (std::vector<int64_t>{1, 4, 5}));
  const std::vector<float> correction = {0, 0, 0, 0, 0, 0, 9, 0};  // chooses, and adds nothing to the weight
  EXPECT_EQ(numbers(correction), (std::vector<int64_t>{5, 6, 7}));
  float sum = 0;
  config.normalize_weights = true;
  config.weight_scale = 2.5;
  for (const ChosenExpert& chosen : choose_experts(config, logits, correction)) sum += chosen.weight;
  EXPECT_NEAR(sum, 2.5F, 1e-6);
}

TEST(ChooseExperts, TiesGoToTheLowerNumber) {
  const std::vector<float> logits(6, 0.25F);
  const ExpertConfig config{.experts = 6, .experts_per_token = 2, .intermediate_size = 1};
  const std::vector<ChosenExpert> chosen = choose_experts(config, logits, {});
  ASSERT_EQ(chosen.size(), 2U);
  EXPECT_EQ(chosen[0].expert, 0);
  EXPECT_EQ(chosen[1].expert, 1);
  EXPECT_FLOAT_EQ(chosen[0].weight, 1.0F / 6);
}

}  // namespace
}  // namespace kvarena
