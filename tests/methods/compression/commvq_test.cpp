// CommVQ: codebooks as good as the authors' fit makes them, caches and logits
// of their code under codebooks that are draws (tests/golden/commvq.py), and
// what is counted.

#include <fmt/format.h>

#include "harness/engine/fit.h"
#include "harness/engine/fitted_file.h"
#include "harness/engine/model_facts.h"
#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/restored_numbers.h"
#include "tests/support/decoding.h"
#include "tests/support/random_entries.h"
#include "tests/support/temporary_folder.h"

namespace kvarena {
namespace {

using nlohmann::json;

const json kSpec = {{"name", "commvq"}, {"bits", 1}, {"code_bits", 4}};

class CommVqTest : public ::testing::Test {
 protected:
  CommVqTest()
      : model_(testing::tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32})),
        facts_(model_facts(model_)),
        golden_(testing::golden("commvq.json")) {}

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
  [[nodiscard]] Prefill read(const json& prompt) {
    return prefill(model_, prompt["tokens"].get<std::vector<int32_t>>(), {}, kPrefillChunk, facts_);
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  json golden_;
  testing::TemporaryFolder folder_;
};

TEST_F(CommVqTest, FitsCodebooksAsGoodAsTheAuthorsCode) {
  Progress quiet({.style = ProgressOptions::Style::quiet});
  const FitTask task{.texts = golden_["texts"].get<std::vector<std::vector<int32_t>>>(),
                     .output = folder_ / "commvq.safetensors"};
  const FittedWeights fitted = fit(model_, facts_, *make_method(kSpec, "golden")->fitter(), task, quiet);
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
    Activity activity;
    const KvCache cache = compress_prompt(start, *make_method(spec, "golden"), activity);
    for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
      const Segment& segment = *cache.layers[layer].segments().front();
      EXPECT_EQ(segment.entries(0), 128);
      testing::expect_restored(segment, prompt["keys"][layer], prompt["values"][layer]);
    }
    auto forced = prompt["forced"].get<std::vector<int32_t>>();
    forced.push_back(0);  // whose logits are those after the token before
    const testing::Decoded decoded = testing::decode(model_, start, spec, std::ssize(forced), {.forced = forced});
    testing::expect_near(decoded.logits.back(), prompt["logits"], 1e-2, "token ");
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
