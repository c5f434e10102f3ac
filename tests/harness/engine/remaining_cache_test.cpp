// The share that a compressed cache lacks: the whole comes out bit for bit, and what is sent is counted.

#include "harness/engine/stored/remaining_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/random.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/prefill.h"
#include "harness/engine/stored/stored_cache.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::tiny_model;
using testing::tiny_prompt;

constexpr int64_t kPrompt = 300;

class RemainingCache : public ::testing::Test {
 protected:
  RemainingCache() : model_(tiny_model()), facts_(model_facts(model_)) {}

  struct Stored {
    std::unique_ptr<Method> method;
    Prefill prompt;
    std::vector<std::byte> compressed, remaining;
    KvCache left;
  };
  Stored stored(const json& spec) {
    auto method = make_method(spec, "test");
    Prefill prompt = prefill(model_, tiny_prompt(kPrompt), method->needs(), kPrefillChunk, facts_);
    std::vector<std::byte> compressed = store_cache(prompt, method.get());
    KvCache left = restore_cache(model_, *facts_, method.get(), compressed);
    std::vector<std::byte> remaining = remaining_bytes(prompt.cache, left);
    return {.method = std::move(method),
            .prompt = std::move(prompt),
            .compressed = std::move(compressed),
            .remaining = std::move(remaining),
            .left = std::move(left)};
  }

  /// Bytes of the whole cache at rest say its bits and positions.
  static std::vector<std::byte> at_rest(KvCache cache) {
    const auto length = static_cast<size_t>(cache.length);
    const Prefill prompt{.tokens = std::vector<int32_t>(length), .cache = std::move(cache)};
    return store_cache(prompt, nullptr);
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
};

TEST_F(RemainingCache, CompletesTheWholeBitForBit) {
  const json dropping = {{"name", "snapkv"}, {"keep", 0.3}};
  const json specs[] = {dropping,
                        {{"name", "knorm"}, {"keep", 0.5}},
                        {{"name", "cachegen"}},
                        {{"name", "kivi"}, {"bits", 4}, {"residual_length", 32}},
                        {{"name", "kivi"}, {"bits", 2}, {"residual_length", 32}, {"over", dropping}},
                        {{"name", "kvquant"}, {"bits", 3}, {"sinks", 4}},
                        {{"name", "rotatekv"}, {"bits", 4}}};
  for (const json& spec : specs) {
    SCOPED_TRACE(spec.dump());
    Stored of = stored(spec);
    const std::vector<std::byte> whole = store_cache(of.prompt, nullptr);
    EXPECT_EQ(remaining_bytes(of.prompt.cache, of.left), of.remaining);
    EXPECT_EQ(at_rest(completed_cache(of.left, of.remaining)), whole);
    // Entries that were drafted meanwhile are none of the prompt's.
    const std::vector<int32_t> drafts = tiny_prompt(7, 3);
    const SequencePass pass{.tokens = drafts, .cache = &of.left, .hooks = nullptr, .logits = LogitsRows::none};
    (void)model_.forward({&pass, 1});
    EXPECT_EQ(at_rest(completed_cache(of.left, of.remaining)), whole);
    fmt::print("{}: c {:.3f}, rest {:.3f}\n", spec.dump(),
               static_cast<double>(of.compressed.size()) / static_cast<double>(whole.size()),
               static_cast<double>(of.remaining.size()) / static_cast<double>(whole.size()));
  }
}

TEST_F(RemainingCache, OfADroppingMethodIsWhatItDropped) {
  const Stored of = stored({{"name", "snapkv"}, {"keep", 0.3}});
  int64_t bytes = 4 + 4 + 8;  // a mark, layers, tokens
  for (const LayerCache& layer : of.left.layers) {
    for (int64_t head = 0; head < layer.shape().kv_heads; ++head) {
      const int64_t kept = layer.entries(head);
      ASSERT_GT(kept, 0);
      const int64_t blocks = (kept + 15) / 16;
      bytes += 2 * (4 + blocks);  // no codes, a byte for 16 entries and side
      bytes += (kPrompt - kept) * layer.shape().entry_bytes() / layer.shape().kv_heads;
    }
  }
  EXPECT_EQ(std::ssize(of.remaining), bytes);
}

TEST_F(RemainingCache, OfACodecIsLessThanTheWholeAndMoreThanNothing) {
  // Bits that 4 and 2 say of a number need not be said again.
  const auto whole = static_cast<double>(store_cache(stored({{"name", "cachegen"}}).prompt, nullptr).size());
  for (const int bits : {4, 2}) {
    const Stored of = stored({{"name", "kivi"}, {"bits", bits}, {"residual_length", 32}});
    const auto rest = static_cast<double>(of.remaining.size());
    EXPECT_LT(rest, 0.9 * whole);
    EXPECT_GT(rest + static_cast<double>(of.compressed.size()), 0.8 * whole);
  }
}

TEST_F(RemainingCache, CutOrForeignBytesAreRefused) {
  for (const json& spec : {json{{"name", "snapkv"}, {"keep", 0.3}}, json{{"name", "kivi"}, {"residual_length", 32}}}) {
    const Stored of = stored(spec);
    const RandomStream random(6, "cuts");
    for (uint64_t i = 0; i < 30; ++i) {
      const std::span<const std::byte> cut(of.remaining.data(), random.below(of.remaining.size(), i));
      EXPECT_THROW((void)completed_cache(of.left, cut), UserError) << cut.size() << " bytes";
    }
    std::vector<std::byte> longer = of.remaining;
    longer.push_back(std::byte{0});
    EXPECT_THROW((void)completed_cache(of.left, longer), UserError);
    for (size_t i = 0; i < 64; ++i) {  // wrong sizes are refused or read as numbers, never beyond the end
      std::vector<std::byte> wrong = of.remaining;
      wrong[i] ^= std::byte{0x7f};
      try {
        (void)completed_cache(of.left, wrong);
      } catch (const UserError&) {
      }
    }
  }
}

}  // namespace
}  // namespace kvarena
