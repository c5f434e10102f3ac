// Kept positions of every layer and head of the default model against kvpress and the authors' rules
// (tests/golden/dropping_methods.py, learned_smollm2.py).

#include <gtest/gtest.h>

#include <cstdio>

#include "harness/engine/model_facts.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/method/registry.h"
#include "tests/methods/compression/smollm2_f32.h"

namespace kvarena {
namespace {

using nlohmann::json;

struct Comparison {
  int64_t equal = 0;
  int64_t different = 0;
  int64_t doubtful = 0;  // layers whose choice hangs on rounding in the reference itself

  [[nodiscard]] int64_t compared() const { return equal + different; }
};

class KeptEntriesOfSmolLm2 : public testing::SmolLm2F32 {
 protected:
  /// Every case of a golden file, layer by layer.
  Comparison compare(const json& golden, const std::shared_ptr<const ModelFacts>& facts) {
    Comparison result;
    for (const json& prompt : golden["prompts"]) {
      Needs needs;
      for (const json& one : prompt["cases"]) needs = combine(needs, make_method(one["spec"], "golden")->needs());
      const Prefill start = prefill(*model_, prompt["tokens"].get<std::vector<int32_t>>(), needs, kPrefillChunk, facts);
      for (const json& one : prompt["cases"]) {
        Activity activity;
        const KvCache cache = compress_prompt(start, *make_method(one["spec"], "golden"), activity);
        for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
          const json& expected = one["layers"][layer];
          const bool same = !expected.is_null() && digest_of(cache.layers[layer]) == expected.get<std::string>();
          ++(expected.is_null() ? result.doubtful : same ? result.equal : result.different);
          if (!expected.is_null() && !same) std::printf("%s, layer %zu differs\n", one["spec"].dump().c_str(), layer);
        }
      }
    }
    return result;
  }

 private:
  static std::string digest_of(const LayerCache& layer) {
    json heads = json::array();
    for (int64_t head = 0; head < layer.shape().kv_heads; ++head) heads.push_back(layer.tail().positions(head));
    return digest(heads);
  }
};

TEST_F(KeptEntriesOfSmolLm2, AreThoseOfTheReferences) {
  const Comparison found = compare(golden("dropping_smollm2.json"), nullptr);
  EXPECT_EQ(found.compared() + found.doubtful, 5 * 3 * 37 * 30);
  EXPECT_GT(found.compared(), 9 * found.doubtful);
  // Thirty layers of float32 arithmetic in another order than the library's turn a near tie here and there: 6 layers of
  // some 16000 when this was written, at most 3 of them in one setting.
  EXPECT_LE(found.different, found.compared() / 1000);
}

/// Methods with weights, with those that the project ships for this model (tests/golden/learned_smollm2.py).
TEST_F(KeptEntriesOfSmolLm2, ByFittedWeightsAreKvpresss) {
  const json expected = golden("learned_smollm2.json");
  const auto facts = model_facts(*model_);
  facts->text.encode = [&](std::string_view text) {
    return expected["instructions"][text.find("starting") == std::string_view::npos ? 0 : 1]
        .get<std::vector<int32_t>>();
  };
  const Comparison found = compare(expected, facts);
  EXPECT_EQ(found.compared() + found.doubtful, 5 * (3 * 10 + 6) * 30);
  EXPECT_GT(found.compared(), 9 * found.doubtful);
  EXPECT_LE(found.different, found.compared() / 1000);
}

}  // namespace
}  // namespace kvarena
