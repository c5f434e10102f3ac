// Chunks on a tier come back with the bits that were put, or not at all.

#include "harness/engine/reuse/tiered_chunk_store.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/cells/cells.h"
#include "tests/harness/engine/reuse/support.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using testing::expect_same_bits;
using testing::tiny_model;
using testing::tiny_prompt;

/// Host memory of `host_bytes` behind an emulated link, and a disk.
storage::HierarchyPtr machine(const std::filesystem::path& folder, int64_t host_bytes = storage::kUnlimited) {
  std::vector<storage::TierSettings> settings(2);
  settings[0].capacity_bytes = host_bytes;
  settings[0].link.name = "test";
  settings[0].link.bytes_per_s = 1e9;
  settings[1].tier = Tier::disk;
  settings[1].folder = folder;
  return std::make_shared<const storage::Hierarchy>(settings);
}

TEST(TieredChunkStore, GivesBackBitsFromHostAndDiskInEveryStoredType) {
  const testing::TemporaryFolder scratch;
  for (const kernels::DType type : {kernels::DType::f32, kernels::DType::bf16}) {
    Transformer model = tiny_model(1, {.cache = type});
    for (const Tier tier : {Tier::host, Tier::disk}) {
      TieredChunkStore store(machine(scratch.path()), tier);
      int64_t cells = 0;
      for (const int64_t n : {1, 16, 77}) {
        store.put(chunk_key(model, tiny_prompt(n)), compute_chunk(model, tiny_prompt(n)));
        cells += kernels::cells_for(n);
      }
      for (const int64_t n : {77, 1, 16}) {
        const ChunkCache found = store.find(chunk_key(model, tiny_prompt(n)));
        ASSERT_NE(found, nullptr);
        const ChunkCache fresh = compute_chunk(model, tiny_prompt(n));
        expect_same_bits(*found, *fresh);
        EXPECT_EQ(found->prompt_length, fresh->prompt_length);
        EXPECT_FALSE(found->layers[0].tail().ragged());
        EXPECT_EQ(found->layers[0].tail().position(0, n - 1), n - 1);
      }
      EXPECT_EQ(store.find(chunk_key(model, tiny_prompt(76))), nullptr);
      EXPECT_EQ(store.bytes(), cells * kernels::kCell * model.config().layers * model.layer_shape(0).entry_bytes());
    }
  }
}

TEST(TieredChunkStore, AChunkStaysWhereAnotherOfItsKeyIsPut) {
  const testing::TemporaryFolder scratch;
  Transformer model = tiny_model();
  TieredChunkStore store(machine(scratch.path()), Tier::host);
  const ChunkCache first = compute_chunk(model, tiny_prompt(20, 1));
  store.put("key", first);
  const int64_t bytes = store.bytes();
  const std::shared_ptr<const void> held = store.hold("key");
  store.put("key", compute_chunk(model, tiny_prompt(20, 2)));
  EXPECT_EQ(store.hold("key"), held);
  expect_same_bits(*store.find("key"), *first);
  EXPECT_EQ(store.bytes(), bytes);
}

TEST(TieredChunkStore, ATierWithoutRoomTakesNothingAndKeepsTheOthers) {
  const testing::TemporaryFolder scratch;
  Transformer model = tiny_model();
  const ChunkCache small = compute_chunk(model, tiny_prompt(20));
  TieredChunkStore store(machine(scratch.path(), 2 * small->bytes()), Tier::host);
  store.put("small", small);
  EXPECT_THROW(store.put("large", compute_chunk(model, tiny_prompt(300))), storage::TierFull);
  EXPECT_EQ(store.find("large"), nullptr);
  expect_same_bits(*store.find("small"), *small);
}

TEST(TieredChunkStore, AMachineWithoutTheTierIsRefused) {
  const testing::TemporaryFolder scratch;
  EXPECT_THROW(TieredChunkStore(machine(scratch.path()), Tier::remote), UserError);
}

}  // namespace
}  // namespace kvarena
