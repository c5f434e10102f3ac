// DuoAttention: by hand, and the heads that kvpress finds and what it masks (tests/golden/learned_kvpress.py).

#include "harness/core/files.h"
#include "harness/engine/fit.h"
#include "tests/methods/compression/learned_golden.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::ObservedLayer;

TEST(DuoAttention, HeadsBelowTheQuantileStream) {
  const FittedTensors gates = {{"full_attention_heads", {.shape = {1, 4}, .values = {0.9F, 0.1F, 0.5F, 0.3F}}}};
  const auto sizes = [&](double sparsity) {
    ObservedLayer layer(std::vector<float>(80, 1.0F), 4, 10, {gates});
    const json spec = {{"name", "duo_attention"}, {"sparsity", sparsity}, {"sinks", 2}, {"recent", 3}};
    (void)layer.kept(spec);
    std::vector<size_t> counts;
    for (int64_t head = 0; head < 4; ++head) counts.push_back(layer.cache.layers[0].tail().positions(head).size());
    if (sparsity == 0.5) {
      EXPECT_EQ(layer.cache.layers[0].tail().positions(1), (std::vector<int32_t>{0, 1, 7, 8, 9}));
    }
    return counts;
  };
  EXPECT_EQ(sizes(0.5), (std::vector<size_t>{10, 5, 10, 5}));
  EXPECT_EQ(sizes(0), (std::vector<size_t>{10, 10, 10, 10}));
}

class DuoAttentionGolden : public testing::LearnedGolden {
 protected:
  DuoAttentionGolden() : LearnedGolden("duo_attention") {}
};

TEST_F(DuoAttentionGolden, FindsHeadsAndTheirReach) {
  const json& expected = golden_;
  const json prompt = golden_["tokens"];
  json spec = {{"name", "duo_attention"}, {"form", "kvpress"}, {"sinks", 8}, {"recent", 16}};
  Progress quiet({.style = ProgressOptions::Style::quiet});
  FitTask task{.texts = expected["texts"].get<std::vector<std::vector<int32_t>>>(),
               .output = folder_ / "heads.safetensors"};
  const FittedWeights heads = fit(model_, model_facts(model_), *make_method(spec, "golden")->fitter(), task, quiet);
  const std::vector<float>& reach = heads.at("full_attention_heads", {3, 2}).values;
  std::string table;
  for (size_t head = 0; head < reach.size(); ++head) {
    EXPECT_NEAR(reach[head], expected["reach"][head / 2][head % 2].get<double>(), 2e-5) << "head " << head;
    table += fmt::format("{}{}", reach[head], head % 2 == 0 ? "\t" : "\n");
  }
  write_file(folder_ / "full_attention_heads.tsv", table);  // as published
  for (const char* file : {"heads.safetensors", "full_attention_heads.tsv"}) {
    spec["weights"] = (folder_ / file).string();
    for (const auto& [sparsity, selection] : expected["kept"].items()) {
      spec["sparsity"] = std::stod(sparsity);
      EXPECT_EQ(kept(prompt.get<std::vector<int32_t>>(), spec, 0), selection) << file << ", sparsity " << sparsity;
    }
  }
}

}  // namespace
}  // namespace kvarena
