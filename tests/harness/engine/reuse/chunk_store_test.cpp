// Chunks in memory under a capacity: the least recently used go, what somebody holds stays.

#include "harness/engine/reuse/chunk_store.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using testing::tiny_model;
using testing::tiny_prompt;

TEST(MemoryChunkStore, ForgetsWhatWasNotUsedForLongestButForWhatIsHeld) {
  Transformer model = tiny_model();
  const auto chunk = [&](uint64_t seed) { return compute_chunk(model, tiny_prompt(32, seed)); };
  const int64_t bytes = chunk(0)->bytes();
  MemoryChunkStore store(2 * bytes);
  store.put("a", chunk(1));
  store.put("b", chunk(2));
  EXPECT_EQ(store.bytes(), 2 * bytes);
  EXPECT_NE(store.find("a"), nullptr);
  store.put("c", chunk(3));
  EXPECT_EQ(store.find("b"), nullptr);
  EXPECT_NE(store.find("a"), nullptr);
  EXPECT_EQ(store.bytes(), 2 * bytes);

  std::shared_ptr<const void> held = store.hold("c");
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(store.hold("b"), nullptr);
  store.put("d", chunk(4));
  store.put("e", chunk(5));
  EXPECT_NE(store.find("c"), nullptr) << "somebody holds it";
  EXPECT_NE(store.find("e"), nullptr);
  EXPECT_EQ(store.find("a"), nullptr);
  EXPECT_EQ(store.find("d"), nullptr);
  EXPECT_EQ(store.bytes(), 2 * bytes);
  held.reset();
  store.put("f", chunk(6));
  EXPECT_EQ(store.find("c"), nullptr);
}

TEST(MemoryChunkStore, WhatTwoComputedStaysUntilBothHaveLetGo) {
  Transformer model = tiny_model();
  const auto chunk = [&](uint64_t seed) { return compute_chunk(model, tiny_prompt(32, seed)); };
  MemoryChunkStore store(chunk(0)->bytes());
  store.put("a", chunk(1));
  const std::shared_ptr<const void> first = store.hold("a");
  store.put("a", chunk(1));
  std::shared_ptr<const void> second = store.hold("a");
  second.reset();
  store.put("b", chunk(2));
  EXPECT_NE(store.find("a"), nullptr) << "the first still holds it";
}

TEST(MemoryChunkStore, TheNewestIsThereForWhoeverPutItWhateverTheCapacity) {
  Transformer model = tiny_model();
  MemoryChunkStore store(0);
  for (const char* key : {"a", "b"}) {
    store.put(key, compute_chunk(model, tiny_prompt(20)));
    EXPECT_NE(store.find(key), nullptr);
  }
  EXPECT_EQ(store.find("a"), nullptr);
  store.put("b", compute_chunk(model, tiny_prompt(40)));
  EXPECT_EQ(store.bytes(), store.find("b")->bytes()) << "put once more, it is counted once";
}

}  // namespace
}  // namespace kvarena
