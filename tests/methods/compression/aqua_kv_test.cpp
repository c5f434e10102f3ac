// AQUA-KV: predictors that the authors' code fits, caches and logits that it makes under predictors that are draws
// (tests/golden/aqua_kv.py), what is counted, and what comes later.

#include <map>

#include "harness/engine/fitted_file.h"
#include "tests/methods/compression/authors_golden.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using nlohmann::json;

class AquaKvTest : public testing::AuthorsGolden {
 protected:
  AquaKvTest() : AuthorsGolden("aqua_kv.json") {}

  /// The settings with a file of the fixture's predictors and grids.
  [[nodiscard]] json drawn(json spec) const {
    const std::filesystem::path file = folder_ / "drawn.safetensors";
    FittedWeights all{.place = file.string(), .tensors = {}, .metadata = {}};
    for (const auto& [bits, points] : golden_["grids"].items()) {
      FittedTensor& grid = all.tensors["grid." + bits] = {.shape = {std::ssize(points), 2}, .values = {}};
      for (const json& point : points) grid.values.insert(grid.values.end(), {point[0], point[1]});
    }
    for (const auto& [name, inputs] : std::map<std::string, int64_t>{{"keys", 65}, {"values", 129}}) {
      for (const std::string layer : {".1", ".2"}) {
        FittedTensor& both = all.tensors[name + layer] = {
            .shape = {64, inputs}, .values = testing::random_floats(64 * inputs, name + layer, 7)};
        for (float& x : both.values) x /= 8;
      }
    }
    spec["weights"] = file.string();
    write_fitted(file, std::move(all), /*bf16=*/false);
    return spec;
  }
};

TEST_F(AquaKvTest, FitsThePredictorsOfTheAuthorsCode) {
  const FittedWeights fitted = fitted_on_texts({{"name", "aqua_kv"}}, "aqua_kv.safetensors");
  for (size_t side = 0; side < 2; ++side) {
    const std::vector<float>& all = fitted.at(side == 0 ? "keys.1" : "values.1", {64, side == 0 ? 65 : 129}).values;
    std::vector<float> some;
    for (size_t i = 0; i < all.size(); i += 97) some.push_back(all[i]);
    testing::expect_near(some, golden_["weights"][side], 1e-4, "weight ");
  }
  EXPECT_EQ(fitted.tensors.size(), 4U + 2U);
}

TEST_F(AquaKvTest, RestoresAndAttendsAsTheAuthorsCode) {
  ASSERT_EQ(golden_["prompts"].size(), 5U);
  for (size_t index = 0; index < 2; ++index) {
    for (const json& prompt : golden_["prompts"]) {
      const json& one = prompt["cases"].at(index);
      SCOPED_TRACE(one["spec"].dump());
      const json spec = drawn(one["spec"]);
      const Prefill start = read(prompt);
      expect_layers(compressed(start, spec), 1, 96, one);
      expect_logits(start, spec, prompt, one["logits"], 1e-2);
    }
  }
}

TEST_F(AquaKvTest, CountsCodesAndLengthsOfAllLayers) {
  const json spec = drawn({{"name", "aqua_kv"}, {"buffer", 64}});
  Activity activity;
  const Prefill start = read(golden_["prompts"][0]);
  const KvCache cache = compress_prompt(start, *make_method(spec, "test"), activity);
  const int64_t sinks = cache.layers[0].segments().front()->bytes() * 3;
  // Two sides of 64 channels: 4 bits in the first layer, 2 in the others, and a length in f16.
  EXPECT_EQ(cache.bytes() - sinks, 96 * 2 * (32 + 2 + 2 * (16 + 2)));
  EXPECT_EQ(activity.entries_packed, 3 * 2 * 96);
}

TEST_F(AquaKvTest, CodesLaterEntriesWhenTheyFillTheBuffer) {
  const json spec = drawn({{"name", "aqua_kv"}, {"buffer", 16}});
  const testing::Decoded decoded = testing::decode(model_, read(golden_["prompts"][0]), spec, 33);
  EXPECT_EQ(decoded.activity.entries_packed, 3 * 2 * (96 + 32));
}

TEST_F(AquaKvTest, StartsAnewBehindALayerThatItLeavesAlone) {
  json spec = drawn({{"name", "aqua_kv"}, {"buffer", 64}});
  spec["layers"] = {0, 2};
  Activity activity;
  const KvCache cache = compress_prompt(read(golden_["prompts"][0]), *make_method(spec, "test"), activity);
  EXPECT_EQ(cache.layers[2].bytes(), cache.layers[0].bytes());  // coded as a first layer
  EXPECT_EQ(cache.layers[1].segments().size(), 1U);
}

}  // namespace
}  // namespace kvarena
