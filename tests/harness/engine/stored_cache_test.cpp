// Caches at rest: what comes back has the bits of what the method leaves in memory, for every method that can be
// stored; other bytes are refused.

#include "harness/engine/stored/stored_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "tests/support/registered_method.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::tiny_model;
using testing::tiny_prompt;

class StoredCache : public ::testing::Test {
 protected:
  StoredCache() : model_(tiny_model()), facts_(model_facts(model_)) {}

  /// The method at half of the entries where it has a budget, null when its caches cannot be stored.
  static std::unique_ptr<Method> storable(const MethodEntry& entry) {
    const json spec = testing::active_settings(entry);
    if (!check_method(spec, "test").empty()) return nullptr;
    auto method = make_method(spec, "test");
    return storing_problem(*method).empty() ? std::move(method) : nullptr;
  }

  Prefill read(int64_t tokens, const Needs& needs) {
    return prefill(model_, tiny_prompt(tokens), needs, kPrefillChunk, facts_);
  }

  std::vector<float> logits_after(KvCache& cache) {
    const std::vector<int32_t> question = tiny_prompt(9, 3);
    const SequencePass pass{.tokens = question, .cache = &cache, .hooks = nullptr, .logits = LogitsRows::all};
    const std::span<const float> logits = model_.forward({&pass, 1});
    return {logits.begin(), logits.end()};
  }

  static void expect_same(const KvCache& a, const KvCache& b) {
    ASSERT_EQ(a.layers.size(), b.layers.size());
    EXPECT_EQ(a.length, b.length);
    for (size_t layer = 0; layer < a.layers.size(); ++layer) {
      SCOPED_TRACE(layer);
      const auto &x = a.layers[layer].segments(), &y = b.layers[layer].segments();
      ASSERT_EQ(x.size(), y.size());
      ASSERT_EQ(a.layers[layer].packed().size(), b.layers[layer].packed().size());
      for (size_t i = 0; i < x.size(); ++i) expect_same(*x[i], *y[i]);
    }
  }

  static void expect_same(const Segment& x, const Segment& y) {
    for (int64_t head = 0; head < x.shape().kv_heads; ++head) {
      ASSERT_EQ(x.positions(head), y.positions(head)) << "head " << head;
      const auto floats = static_cast<size_t>(x.entries(head) * x.shape().head_dim);
      std::vector<float> rows[4];
      for (auto& side : rows) side.resize(floats);
      x.read(head, rows[0].data(), rows[1].data());
      y.read(head, rows[2].data(), rows[3].data());
      ASSERT_EQ(rows[0], rows[2]) << "keys";
      ASSERT_EQ(rows[1], rows[3]) << "values";
    }
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
};

TEST_F(StoredCache, IsWhatEveryStorableMethodLeavesBitForBit) {
  int64_t seen = 0, smaller = 0, streams = 0;
  for (const MethodEntry& entry : method_registry()) {
    SCOPED_TRACE(entry.info.name);
    const auto method = storable(entry);
    if (!method) continue;  // acts while decoding, or packs for attention
    try {
      const Prefill prompt = read(150, method->needs());
      Activity activity;
      KvCache left = compress_prompt(prompt, *method, activity);
      const std::vector<std::byte> bytes = store_cache(prompt, method.get());
      EXPECT_EQ(bytes, store_cache(prompt, method.get())) << "deterministic";
      KvCache back = restore_cache(model_, *facts_, method.get(), bytes);
      expect_same(left, back);
      EXPECT_EQ(logits_after(left), logits_after(back));
      ++seen;
      smaller += bytes.size() < store_cache(prompt, nullptr).size() ? 1 : 0;
      streams += activity.entries_packed > 0 ? 1 : 0;
    } catch (const UserError& error) {
      fmt::print("{}: {}\n", entry.info.name, error.what());  // wants weights, text or a library
    }
  }
  fmt::print("{} methods, {} of them smaller than the full cache, {} codecs\n", seen, smaller, streams);
  EXPECT_GE(seen, 12);
  EXPECT_EQ(smaller, seen);
  EXPECT_GE(streams, 1);
}

/// Settings of codecs whose packed entries lie in a store as they are.
std::vector<json> packing_codecs() {
  const json dropping = {{"name", "snapkv"}, {"keep", 0.5}};
  return {{{"name", "kivi"}, {"bits", 4}},
          {{"name", "kivi"}, {"bits", 2}, {"residual_length", 32}},
          {{"name", "kivi"}, {"bits", 1}, {"residual_length", 64}, {"sinks", 3}},
          {{"name", "kivi"}, {"bits", 4}, {"residual_length", 32}, {"over", dropping}},
          {{"name", "kvquant"}, {"bits", 4}},
          {{"name", "kvquant"}, {"bits", 3}, {"sinks", 5}, {"outliers", 0.03}},
          {{"name", "kvquant"}, {"bits", 2}, {"codebook", "uniform"}, {"qnorm", true}, {"over", dropping}},
          {{"name", "rotatekv"}, {"bits", 4}},
          {{"name", "rotatekv"}, {"bits", 2}, {"massive", 0}},
          {{"name", "rotatekv"}, {"bits", 3}, {"sinks", 2}, {"group_size", 16}}};
}

TEST_F(StoredCache, PackedEntriesComeBackPackedAndGoOnAsTheyWould) {
  for (const json& spec : packing_codecs()) {
    SCOPED_TRACE(spec.dump());
    const auto codec = make_method(spec, "test");
    ASSERT_EQ(storing_problem(*codec), "");
    const Prefill prompt = read(300, codec->needs());
    Activity activity;
    KvCache left = compress_prompt(prompt, *codec, activity);
    const std::vector<std::byte> bytes = store_cache(prompt, codec.get());
    KvCache back = restore_cache(model_, *facts_, codec.get(), bytes);
    expect_same(left, back);
    EXPECT_EQ(logits_after(left), logits_after(back));
    // The codec goes on packing what came back, with what it calibrated on the prompt.
    for (KvCache* cache : {&left, &back}) {
      Activity more;
      for (LayerContext& layer : contexts_of(*cache, 300, facts_.get(), more)) codec->after_append(layer);
    }
    expect_same(left, back);
    expect_same(left.clone(), back.clone());
    EXPECT_GT(activity.entries_packed, 0);
    EXPECT_LT(bytes.size(), store_cache(prompt, nullptr).size());
  }
}

TEST_F(StoredCache, WithItsFrontApartItHasTheSameBitsAndIsWrittenAgain) {
  std::vector<json> specs = packing_codecs();
  for (const char* name : {"knorm", "snapkv", "adakv"}) specs.push_back({{"name", name}, {"keep", 0.95}});
  specs.push_back({{"name", "cachegen"}});
  specs.emplace_back();
  for (const json& spec : specs) {
    SCOPED_TRACE(spec.dump());
    const auto method = spec.is_null() ? nullptr : make_method(spec, "test");
    const Prefill prompt = read(600, method ? method->needs() : Needs{});
    Activity activity;
    KvCache left = method ? compress_prompt(prompt, *method, activity) : prompt.cache.clone();
    const std::vector<std::byte> bytes = store_cache(prompt, method.get(), /*divided=*/true);
    KvCache back = restore_cache(model_, *facts_, method.get(), bytes);
    EXPECT_EQ(stores_stream(method.get()), method && spec.at("name") == "cachegen");
    if (!stores_stream(method.get())) {
      EXPECT_EQ(store_again(back), bytes);
    }
    if (left.layers.front().tail().entries(0) >= kernels::kChunk && !stores_stream(method.get())) {
      EXPECT_LT(back.layers.front().tail().entries(0), kernels::kChunk) << "the rest lies in front";
    }
    EXPECT_EQ(logits_after(left), logits_after(back));
  }
}

TEST_F(StoredCache, OfKiviIsItsCodesItsScalesAndItsNewestEntries) {
  const auto kivi = make_method({{"name", "kivi"}, {"bits", 4}, {"residual_length", 64}}, "test");
  const int64_t n = 300, packed_keys = 256, packed_values = n - 64;
  const Prefill prompt = read(n, kivi->needs());
  const LayerShape& shape = prompt.cache.layers.front().shape();
  ASSERT_EQ(shape.head_dim % 32, 0);
  const int64_t d = shape.head_dim, cells = (packed_values + 15) / 16 * 16;  // codes and scales are kept by 16 entries
  const int64_t codes = packed_keys * d / 2 + cells * d / 2;
  const int64_t scales = 2 * 2 * (packed_keys / 32 * d + cells * (d / 32));
  const int64_t recent = 2 * d * ((n - packed_keys) + (n - packed_values));  // keys, values in 16 bits
  const int64_t of_layer = 1 + 2 * 8 + 9 + 1 + 2 * 8;  // forms of two segments, counts, positions, the tail's
  const auto layers = std::ssize(prompt.cache.layers);
  EXPECT_EQ(std::ssize(store_cache(prompt, kivi.get())),
            16 + layers * (of_layer + shape.kv_heads * (codes + scales + recent)));
}

TEST_F(StoredCache, OfNoMethodIsTheWholeCache) {
  for (const int64_t tokens : {1, 15, 16, 17, 200}) {
    Prefill prompt = read(tokens, {});
    KvCache back = restore_cache(model_, *facts_, nullptr, store_cache(prompt, nullptr));
    expect_same(prompt.cache, back);
    EXPECT_EQ(logits_after(prompt.cache), logits_after(back));
  }
}

TEST_F(StoredCache, ShortPromptsOfACodecStayAsTheyAre) {
  const auto codec = make_method({{"name", "cachegen"}}, "test");
  for (const int64_t tokens : {1, 2, 5}) {
    const Prefill prompt = read(tokens, codec->needs());
    Activity activity;
    const KvCache left = compress_prompt(prompt, *codec, activity);
    expect_same(left, restore_cache(model_, *facts_, codec.get(), store_cache(prompt, codec.get())));
  }
}

TEST_F(StoredCache, MethodsThatKeepMoreThanEntriesAreRefusedWithTheReason) {
  const Prefill prompt = read(40, {});
  for (const char* name : {"full", "gear", "quest", "vericache"}) {
    json spec = {{"name", name}};
    if (spec["name"] == "quest") spec["keep"] = 0.5;
    if (spec["name"] == "vericache") spec["drafter"] = {{"name", "snapkv"}, {"keep", 0.5}};
    const auto method = make_method(spec, "test");
    EXPECT_NE(storing_problem(*method), "") << name;
    EXPECT_THROW((void)store_cache(prompt, method.get()), UserError) << name;
  }
}

TEST_F(StoredCache, CutOrForeignBytesAreRefused) {
  const auto dropping = make_method({{"name", "snapkv"}, {"keep", 0.5}}, "test");
  const auto codec = make_method({{"name", "cachegen"}}, "test");
  const auto kivi = make_method({{"name", "kivi"}, {"residual_length", 32}}, "test");
  const auto kvquant = make_method({{"name", "kvquant"}}, "test");
  const auto rotatekv = make_method({{"name", "rotatekv"}}, "test");
  const RandomStream random(5, "cuts");
  for (const Method* method : {static_cast<const Method*>(nullptr), static_cast<const Method*>(dropping.get()),
                               static_cast<const Method*>(codec.get()), static_cast<const Method*>(kivi.get()),
                               static_cast<const Method*>(kvquant.get()), static_cast<const Method*>(rotatekv.get())}) {
    const Prefill prompt = read(60, method == nullptr ? Needs{} : method->needs());
    const std::vector<std::byte> bytes = store_cache(prompt, method);
    for (uint64_t i = 0; i < 40; ++i) {
      const std::span<const std::byte> cut(bytes.data(), random.below(bytes.size(), i));
      EXPECT_THROW((void)restore_cache(model_, *facts_, method, cut), UserError) << cut.size() << " bytes";
    }
    std::vector<std::byte> longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_THROW((void)restore_cache(model_, *facts_, method, longer), UserError);
    for (size_t i = 0; i < 24; ++i) {  // sizes gone wrong are refused or read as numbers, never beyond the end
      std::vector<std::byte> wrong = bytes;
      wrong[i] ^= std::byte{0x7f};
      try {
        (void)restore_cache(model_, *facts_, method, wrong);
      } catch (const UserError&) {
      }
    }
  }
  EXPECT_THROW((void)restore_cache(model_, *facts_, nullptr, {}), UserError);
}

TEST_F(StoredCache, APromptRunGoesOnFromIt) {
  const std::vector<int32_t> tokens = tiny_prompt(130);
  const Prefill whole = prefill(model_, tokens, {}, kPrefillChunk, facts_);
  const Prefill begun = prefill(model_, std::span(tokens).first(100), {}, kPrefillChunk, facts_);
  PromptRun run(model_, tokens, facts_, restore_cache(model_, *facts_, nullptr, store_cache(begun, nullptr)));
  EXPECT_EQ(run.remaining(), 30);
  run.set_chunk(7);
  while (run.remaining() > 0) {
    const SequencePass pass = run.next_pass();
    run.consume(model_.forward({&pass, 1}));
  }
  const Prefill rest = run.finish();
  EXPECT_EQ(rest.logits, whole.logits);
  expect_same(whole.cache, rest.cache);
}

}  // namespace
}  // namespace kvarena
