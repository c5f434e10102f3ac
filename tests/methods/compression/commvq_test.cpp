// CommVQ: codebooks as good as the authors' fit makes them, caches and logits of their code under codebooks that are
// draws (tests/golden/commvq.py), and what is counted.

#include <fmt/format.h>

#include "harness/engine/fitted_file.h"
#include "tests/methods/compression/authors_golden.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using nlohmann::json;

const json kSpec = {{"name", "commvq"}, {"bits", 1}, {"code_bits", 4}};

class CommVqTest : public testing::AuthorsGolden {
 protected:
  CommVqTest() : AuthorsGolden("commvq.json") {}

  /// The settings with the file of the fixture's codebooks and networks.
  [[nodiscard]] json drawn() const {
    const std::filesystem::path file = folder_ / "drawn.safetensors";
    FittedWeights all{.place = file.string(), .tensors = {}, .metadata = {}};
    const auto add = [&all](const std::string& name, const std::vector<int64_t>& shape) -> FittedTensor& {
      int64_t count = 1;
      for (const int64_t size : shape) count *= size;
      return all.tensors[name] = {.shape = shape, .values = testing::random_floats(count, name, 7)};
    };
    for (int layer = 0; layer < 3; ++layer) {
      const std::string at = fmt::format("layers.{}.", layer);
      FittedTensor& points = add(at + "points", {2, 8, 4, 32});
      for (size_t i = 0; i < points.values.size(); ++i) points.values[i] /= static_cast<float>(4 << (i / 128 % 8));
      for (float& scale : add(at + "value_scale", {64}).values) scale = std::fabs(scale) + 0.5F;
      add(at + "value.norm1.weight", {64});
      add(at + "value.norm1.bias", {64});
      add(at + "value.enc1.weight", {128, 64});
      add(at + "value.enc1.bias", {128});
      add(at + "value.out.weight", {128, 128});
      add(at + "value.out.bias", {128});
      add(at + "value.embedding", {64, 64});
    }
    json spec = kSpec;
    spec["weights"] = file.string();
    write_fitted(file, std::move(all), /*bf16=*/false);
    return spec;
  }
};

TEST_F(CommVqTest, FitsCodebooksAsGoodAsTheAuthorsCode) {
  const FittedWeights fitted = fitted_on_texts(kSpec, "commvq.safetensors");
  for (size_t layer = 0; layer < golden_["errors"].size(); ++layer) {
    const std::vector<float>& errors = fitted.at(fmt::format("layers.{}.key_errors", layer), {2, 8}).values;
    for (size_t i = 0; i < errors.size(); ++i) {
      const double theirs = golden_["errors"][layer][i / 8][i % 8];
      // Where little is left, rounding decides how long a fit goes on.
      EXPECT_NEAR(errors[i] / theirs, 1, i % 8 < 2 ? 1e-2 : 0.05) << "layer " << layer << ", codebook " << i;
    }
  }
}

TEST_F(CommVqTest, RestoresAndAttendsAsTheAuthorsCode) {
  ASSERT_EQ(golden_["prompts"].size(), 5U);
  const json spec = drawn();
  for (const json& prompt : golden_["prompts"]) {
    const Prefill start = read(prompt);
    expect_layers(compressed(start, spec), 0, 128, prompt);
    expect_logits(start, spec, prompt, prompt["logits"], 1e-2);
  }
}

TEST_F(CommVqTest, CountsCodesAndLengths) {
  Activity activity;
  const KvCache cache = compress_prompt(read(golden_["prompts"][0]), *make_method(drawn(), "test"), activity);
  for (const LayerCache& layer : cache.layers)
    EXPECT_EQ(layer.segments().front()->bytes(),
              128 * (2 * 8 * 4 / 8 + 64 / 8 + 2 * 2));  // keys, values, lengths
  EXPECT_EQ(activity.entries_packed, 3 * 2 * 128);
}

}  // namespace
}  // namespace kvarena
