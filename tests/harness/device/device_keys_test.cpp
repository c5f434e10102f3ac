// Keys that are searched on a device (emulated here), against those that are searched on the host.
#include "harness/device/device_keys.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/core/error.h"
#include "harness/engine/model_facts.h"
#include "harness/method/searched_rows.h"
#include "kernels/common/cpu_path.h"
#include "tests/support/cuda/emulator.h"
#include "tests/support/offloaded_model.h"
#include "tests/support/random_entries.h"

namespace kvarena::device {
namespace {

using testing::random_floats;
using testing::tiny_prompt;

constexpr int64_t kHeads = 2, kQueryHeads = 4, kDim = 32;

/// Keys on the host and the device, alike.
class DeviceKeysTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(dynamic_cast<DeviceKeys*>(on_device_.get()), nullptr);
    if (kernels::active_cpu_path() == kernels::CpuPath::reference)
      GTEST_SKIP() << "the reference path rounds otherwise";
  }

  void append(int64_t tokens) {
    const auto rows = random_floats(tokens * kHeads * kDim, "keys", static_cast<uint64_t>(on_host_->count()));
    on_host_->append(rows);
    on_device_->append(rows);
    expect_alike();
  }
  void expect_alike() const {
    EXPECT_EQ(on_device_->count(), on_host_->count());
    EXPECT_EQ(on_device_->bytes(), on_host_->bytes());
    EXPECT_EQ(device_->current(Tier::device), host_->current(Tier::device));
    EXPECT_EQ(device_->peak(Tier::device), host_->peak(Tier::device));
    const int64_t n = on_host_->count();
    for (const int64_t lists : {1, 2, 4}) {
      for (const int64_t count : {int64_t{0}, n / 3, n - 1}) {
        const std::vector<float> q = random_floats(kQueryHeads * kDim, "query", static_cast<uint64_t>(n));
        const KeySearch what{.q = q, .scale = 2, .lists = lists, .among = n - 1, .count = count};
        const auto found = on_device_->search(what);
        EXPECT_EQ(found, on_host_->search(what)) << n << " tokens, " << lists << " lists of " << count;
        EXPECT_EQ(std::ssize(found), lists);
      }
    }
  }

  Offloaded offloaded_;
  LedgerPtr host_ = std::make_shared<MemoryLedger>(), device_ = std::make_shared<MemoryLedger>();
  std::unique_ptr<SearchedKeys> on_host_ = searched_rows(kHeads, kDim, host_);
  std::unique_ptr<SearchedKeys> on_device_ = model_facts(offloaded_.model())->searched_keys(kHeads, kDim, device_);
};

TEST_F(DeviceKeysTest, AreCountedAndFoundAsOnTheHost) {
  for (const int64_t tokens : {40, 1, 7, 1, 300, 1}) append(tokens);
}

TEST_F(DeviceKeysTest, ClonesGoTheirOwnWay) {
  append(50);
  const auto host = std::make_shared<MemoryLedger>(), device = std::make_shared<MemoryLedger>();
  auto other_on_host = on_host_->clone(host), other_on_device = on_device_->clone(device);
  append(30);
  on_host_ = std::move(other_on_host), on_device_ = std::move(other_on_device);
  EXPECT_EQ(host_->current() + device_->current(), 0);
  host_ = host, device_ = device;
  EXPECT_EQ(on_device_->count(), 50);
  expect_alike();
  append(1);
}

TEST_F(DeviceKeysTest, NoListComesOfWhatIsNotANumber) {
  append(40);
  std::vector<float> q = random_floats(kQueryHeads * kDim, "query");
  q[kDim] = std::nanf("");
  for (const int64_t lists : {1, 2, 4}) {
    const KeySearch what{.q = q, .lists = lists, .among = 39, .count = 5};
    const auto found = on_device_->search(what);
    EXPECT_EQ(found, on_host_->search(what)) << lists;
    EXPECT_EQ(found.empty(), lists == 4) << "a head's group takes its first head's number where another's is none";
  }
}

TEST(DeviceKeys, CopiesOfCachesMakeRoomForThem) {
  const std::vector<int32_t> tokens = tiny_prompt(120);
  const Offloaded other;
  const DeviceCache whole(other.device().model().shapes(), Placement::device, 100 + kDecodeHeadroom);
  const int64_t one = whole.bytes_by_device().at(other.device().model().shapes().back().device);
  Offloaded offloaded(5 * one / 2);
  KvCache first = offloaded.model().make_cache(), second = first.clone();
  for (KvCache* cache : {&first, &second}) (void)fed(offloaded.model(), *cache, std::span(tokens).first(100));
  const auto ledger = std::make_shared<MemoryLedger>();
  auto keys = offloaded.model().searched_keys(kHeads, kDim, ledger);
  const DeviceMirrors& mirrors = offloaded.device().mirrors();
  EXPECT_EQ(mirrors.evictions(), 0);
  keys->append(random_floats(one / 2, "keys"));  // in 2 bytes each
  EXPECT_GE(keys->bytes(), one);
  EXPECT_EQ(mirrors.evictions(), 1);
  keys.reset();
  EXPECT_EQ(ledger->current(), 0);
  for (KvCache* cache : {&first, &second}) (void)fed(offloaded.model(), *cache, std::span(tokens).last(20));
  EXPECT_EQ(mirrors.uploads(), 1) << "of the first, which had to go";
  EXPECT_EQ(mirrors.evictions(), 1) << "what was lent is back";
}

TEST(DeviceKeys, SayThatTheDeviceRefuses) {
  if (!emulated_cuda::here()) GTEST_SKIP() << emulated_cuda::kOnlyHere;
  Offloaded offloaded;
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto keys = offloaded.model().searched_keys(kHeads, kDim, ledger);
  emulated_cuda::set_memory(0);
  EXPECT_THROW(keys->append(random_floats(40 * kHeads * kDim, "keys")), UserError);
  emulated_cuda::set_memory(std::numeric_limits<long>::max());
  EXPECT_EQ(ledger->current(), 0);
}

}  // namespace
}  // namespace kvarena::device
