// Tiers of a machine with a device, over the emulator: its streams run late and in random order, so what is said to
// have arrived and has not is NaN.
#include "harness/storage/device_tiers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "harness/core/error.h"
#include "kernels/cuda/device.h"

namespace kvarena::storage {
namespace {

class DeviceTiers : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = kernels::cuda_absent();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }

  LedgerPtr ledger_ = std::make_shared<MemoryLedger>();
  PinnedStorage host_{1 << 20};
  DeviceStorage device_{1 << 20};
};

std::byte expected_at(int64_t i) { return static_cast<std::byte>(i * 7 % 251); }

void fill(Block& block) {
  std::vector<std::byte> content(static_cast<size_t>(block.bytes()));
  for (int64_t i = 0; i < block.bytes(); ++i) content[static_cast<size_t>(i)] = expected_at(i);
  block.write(0, content);
}

std::vector<std::byte> all_of(const Block& block) {
  std::vector<std::byte> content(static_cast<size_t>(block.bytes()));
  block.read(0, content);
  return content;
}

TEST_F(DeviceTiers, BlocksBeginAsZerosAreCountedAndGiveTheirRoomBack) {
  for (Storage* storage : {static_cast<Storage*>(&host_), static_cast<Storage*>(&device_)}) {
    {
      const std::shared_ptr<Block> block = storage->allocate(ledger_, 1000);
      EXPECT_EQ(all_of(*block), std::vector<std::byte>(1000));
      EXPECT_EQ(ledger_->current(storage->tier()), 1000);
      EXPECT_EQ(storage->used(), 1000);
      block->write(990, std::vector<std::byte>(10, std::byte{9}));
      EXPECT_EQ(all_of(*block)[989], std::byte{0});
      EXPECT_EQ(all_of(*block)[999], std::byte{9});
      EXPECT_THROW((void)storage->allocate(ledger_, 1 << 20), TierFull);
    }
    EXPECT_EQ(ledger_->current(storage->tier()), 0);
    EXPECT_EQ(storage->used(), 0);
  }
}

TEST_F(DeviceTiers, PiecesGoBothWays) {
  const auto host = placed(host_.allocate(ledger_, 4096)), device = placed(device_.allocate(ledger_, 4096));
  fill(*host);
  Bus load;
  Transfer there =
      load.copy(host, device, {{.from = 0, .to = 1000, .bytes = 96}, {.from = 2000, .to = 0, .bytes = 500}});
  there.wait();
  EXPECT_EQ(there.bytes(), 596);
  EXPECT_EQ(there.pieces(), 2);
  EXPECT_GT(there.link_seconds(), 0);
  const std::vector<std::byte> got = all_of(*device);
  for (int64_t i = 0; i < 96; ++i) EXPECT_EQ(got[static_cast<size_t>(1000 + i)], expected_at(i));
  for (int64_t i = 0; i < 500; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], expected_at(2000 + i));
  Bus offload;
  offload.copy(device, host, {{.from = 0, .to = 3000, .bytes = 500}}).wait();
  EXPECT_EQ(all_of(*host)[3499], expected_at(2499));
}

TEST_F(DeviceTiers, ScatteredRowsComeByOneKernel) {
  for (const int64_t row_bytes : {32, 256}) {
    const auto host = placed(host_.allocate(ledger_, 100 * row_bytes));
    const auto device = placed(device_.allocate(ledger_, 40 * row_bytes));
    fill(*host);
    const std::vector<int32_t> rows{99, 0, 1, 2, 50, 7, 7, 33, 98, 99, 10, 11, 12, 13, 14, 15, 16, 17, 90};
    Bus bus;
    Transfer transfer = bus.gather(host, device, rows, row_bytes);
    transfer.wait();
    EXPECT_EQ(transfer.bytes(), std::ssize(rows) * row_bytes);
    EXPECT_EQ(transfer.pieces(), 9);
    const std::vector<std::byte> got = all_of(*device);
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int64_t b = 0; b < row_bytes; ++b) {
        ASSERT_EQ(got[i * static_cast<size_t>(row_bytes) + static_cast<size_t>(b)],
                  expected_at(rows[i] * row_bytes + b))
            << "row " << i;
      }
    }
  }
}

TEST_F(DeviceTiers, TransfersOfManyOverlapWithWorkOnAnotherStreamAndFailAlone) {
  const auto host = placed(host_.allocate(ledger_, 1024));
  fill(*host);
  Bus bus([](int64_t transfer) {
    if (transfer == 1) throw UserError("the bus is gone");
  });
  std::vector<std::shared_ptr<PlacedBlock>> arrived;
  std::vector<Transfer> transfers;
  const kernels::CudaQueue compute;
  for (int i = 0; i < 4; ++i) {
    arrived.push_back(placed(device_.allocate(ledger_, 1024)));
    transfers.push_back(bus.copy(host, arrived.back(), {{.from = 0, .to = 0, .bytes = 1024}}));
  }
  const kernels::CudaBuffer here(64), there(64);
  for (int i = 0; i < 20; ++i) kernels::cuda_copy(there.data(), here.data(), 64, compute.stream());
  for (int i = 0; i < 4; ++i) {
    if (i == 1) {
      EXPECT_THROW(transfers[1].wait(), UserError);
      continue;
    }
    transfers[static_cast<size_t>(i)].wait();
    EXPECT_EQ(all_of(*arrived[static_cast<size_t>(i)]), all_of(*host)) << i;
  }
  kernels::cuda_synchronize(compute.stream());
  EXPECT_EQ(bus.link().totals().bytes, 4 * 1024);
}

TEST_F(DeviceTiers, BlocksThatTheDeviceDoesNotReachAreOurMistake) {
  MemoryStorage memory(Tier::host, kUnlimited);
  EXPECT_ANY_THROW((void)placed(memory.allocate(ledger_, 16)));
}

}  // namespace
}  // namespace kvarena::storage
