// LeanK: channels and logits of the authors' code (tests/golden/leank.py), what is counted, and factors of a fit by
// hand.

#include "harness/cache/pruned_key_segment.h"
#include "harness/engine/fitted_file.h"
#include "harness/method/fitter.h"
#include "tests/methods/compression/authors_golden.h"

namespace kvarena {
namespace {

using nlohmann::json;

class LeanKTest : public testing::AuthorsGolden {
 protected:
  LeanKTest() : AuthorsGolden("leank.json") {
    FittedTensor factors{.shape = {3, 64}, .values = {}};
    for (const json& row : golden_["factors"]) {
      for (const json& factor : row) factors.values.push_back(factor);
    }
    write_fitted(factors_, {.tensors = {{"scaling_factors", factors}}}, /*bf16=*/false);
  }
  [[nodiscard]] json settings(const json& one) const {
    json spec = one["spec"];
    spec["weights"] = one["masks"] ? KVARENA_SOURCE_DIR "/tests/golden/leank_masks.pth" : factors_.string();
    return spec;
  }

  std::filesystem::path factors_ = folder_ / "leank.safetensors";
};

/// Channels of the head in the segment that holds its entries.
std::vector<int32_t> channels_of(const LayerCache& layer, int64_t head) {
  for (const auto& segment : layer.segments()) {
    const auto* const pruned = dynamic_cast<const PrunedKeySegment*>(segment.get());
    if (pruned != nullptr && pruned->entries(head) > 0) {
      return {pruned->channels(head).begin(), pruned->channels(head).end()};
    }
  }
  return {};
}

TEST_F(LeanKTest, PrunesAndAttendsAsTheAuthorsCode) {
  ASSERT_EQ(golden_["prompts"].size(), 5U);
  for (const json& prompt : golden_["prompts"]) {
    const Prefill start = read(prompt);
    ASSERT_EQ(prompt["cases"].size(), 4U);
    for (const json& one : prompt["cases"]) {
      SCOPED_TRACE(one["spec"].dump());
      const json spec = settings(one);
      const KvCache cache = compressed(start, spec);
      for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
        for (int64_t head = 0; head < 2; ++head) {
          EXPECT_EQ(channels_of(cache.layers[layer], head), testing::positions_of(one["channels"][layer][head]))
              << "layer " << layer << ", kv head " << head;
        }
      }
      expect_logits(start, spec, prompt, one["logits"], 3e-4);
    }
  }
}

TEST_F(LeanKTest, HoldsNoBytesOfPrunedChannels) {
  const json& one = golden_["prompts"][0]["cases"][3];  // masks of 16 or 32 channels, or none
  Activity activity;
  const KvCache cache = compress_prompt(read(golden_["prompts"][0]), *make_method(settings(one), "test"), activity);
  constexpr int64_t kBetween = 100 - 4 - 16, kWhole = 2 * 32 * 4;
  int64_t held = 0, dropped = 0;
  for (const LayerCache& layer : cache.layers) {
    for (int64_t head = 0; head < 2; ++head) {
      const int64_t width = std::ssize(channels_of(layer, head));
      EXPECT_EQ(layer.entries(head), 20 + (width > 0 ? kBetween : 0));
      held += 16 * kWhole + 16 * kWhole + (width > 0 ? kBetween * (32 + width) * 4 : 0);  // a cell of sinks, the newest
      dropped += width == 0 ? kBetween : 0;
    }
  }
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(activity.entries_dropped, dropped);
  EXPECT_EQ(activity.entries_packed, 6 * kBetween - dropped);
  EXPECT_NEAR(static_cast<double>(cache.bytes()), static_cast<double>(held), 6 * 2 * 32 * 2);  // lists of channels
}

TEST(LeanK, AFitKeepsTheChannelThatQueriesUse) {
  const auto fitter = make_method({{"name", "leank"}}, "test")->fitter();
  constexpr int64_t kEntries = 500, kQueries = 64, kDim = 2;
  FittedTensor queries{.shape = {2, kQueries, kDim}, .values = {}}, keys{.shape = {1, kEntries, kDim}, .values = {}};
  FittedTensor values = keys;
  for (int64_t i = 0; i < 2 * kQueries; ++i) queries.values.insert(queries.values.end(), {3, 0});
  for (int64_t i = 0; i < kEntries; ++i) {
    const auto turn = static_cast<float>(i);
    keys.values.insert(keys.values.end(), {2 * std::sin(turn), 2 * std::cos(turn)});
    values.values.insert(values.values.end(), {std::sin(turn), 0});
  }
  const FittedTensors record = {
      {"queries", queries}, {"keys", keys}, {"values", values}, {"output", {{2, 2, 2}, {1, 0, 0, 1, 1, 0, 0, 1}}}};
  const std::vector<float> factors =
      fitter->solve(std::vector<FittedTensors>(16, record), RandomStream(0, "test")).at("factors").values;
  ASSERT_EQ(factors.size(), 2U);
  EXPECT_GT(factors[0], 0.5F);
  EXPECT_LT(factors[1], 0.2F);
}

}  // namespace
}  // namespace kvarena
