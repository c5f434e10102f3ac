// Kept positions of every layer and head against kvpress and against the authors' rules, from the prompt's tokens on
// (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"
#include "harness/method/registry.h"
#include "harness/model/open_model.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr TransformerOptions kExact{.weights = kernels::DType::f32, .cache = kernels::DType::f32};

/// The positions whose bits are set, ascending.
std::vector<int32_t> positions_of(const std::string& hexadecimal) {
  std::vector<int32_t> list;
  for (size_t digit = 0; digit < hexadecimal.size(); ++digit) {
    const int value = std::stoi(hexadecimal.substr(hexadecimal.size() - 1 - digit, 1), nullptr, 16);
    for (int bit = 0; bit < 4; ++bit) {
      if ((value >> bit & 1) != 0) list.push_back(static_cast<int32_t>(4 * digit) + bit);
    }
  }
  return list;
}

Needs all_needs(const json& cases) {
  Needs needs;
  for (const json& one : cases) needs = combine(needs, make_method(one["spec"], "golden")->needs());
  return needs;
}

void expect_kept(const KvCache& cache, const json& golden, const std::string& what) {
  for (size_t layer = 0; layer < golden.size(); ++layer) {
    for (size_t head = 0; head < golden[layer].size(); ++head) {
      if (golden[layer][head].is_null()) continue;
      EXPECT_EQ(cache.layers[layer].tail().positions(static_cast<int64_t>(head)), positions_of(golden[layer][head]))
          << what << ", layer " << layer << ", kv head " << head;
    }
  }
}

TEST(KeptEntries, AreThoseOfTheReferencesAfterThePromptAndWhileDecoding) {
  Transformer model = testing::tiny_model(1, kExact);
  const json golden = json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/dropping_methods.json"));
  int64_t compared = 0;
  for (size_t index = 0; index < golden["prompts"].size(); ++index) {
    const json& prompt = golden["prompts"][index];
    const auto tokens = prompt["tokens"].get<std::vector<int32_t>>();
    const auto forced = prompt["forced"].get<std::vector<int32_t>>();
    const Prefill start = prefill(model, tokens, all_needs(prompt["cases"]));
    for (const json& one : prompt["cases"]) {
      const std::string what = "prompt " + std::to_string(index) + ", " + one["spec"].dump();
      const auto method = make_method(one["spec"], "golden");
      Activity activity;
      KvCache cache = compress_prompt(start, *method, activity);
      expect_kept(cache, one["kept"], what);
      ++compared;
      if (one["decoded"].is_null()) continue;
      MethodHooks hooks(*method, activity, model.config().layers, static_cast<int64_t>(tokens.size()),
                        start.model.get());
      for (const int32_t token : forced) {
        const SequencePass pass{.tokens = {&token, 1}, .cache = &cache, .hooks = &hooks, .logits = LogitsRows::none};
        (void)model.forward({&pass, 1});
      }
      expect_kept(cache, one["decoded"], what + " after decoding");
    }
  }
  EXPECT_EQ(compared, 5 * 3 * 32);
}

}  // namespace
}  // namespace kvarena
