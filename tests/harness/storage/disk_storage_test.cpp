#include "harness/storage/disk_storage.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <vector>

#include "harness/storage/hierarchy.h"

namespace kvarena::storage {
namespace {

class DiskStorageTest : public ::testing::TestWithParam<DiskAccess> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("kvarena_disk_tier_{}", ::getpid());
    std::filesystem::remove_all(folder_);
    if (GetParam() == DiskAccess::buffered) return;
    try {
      (void)DiskStorage(folder_, kUnlimited, GetParam()).allocate(ledger_, 1);
    } catch (const UserError& error) {
      GTEST_SKIP() << "this file system has no direct access: " << error.what();
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) found.push_back(entry.path());
    return found;
  }

  std::filesystem::path folder_;
  LedgerPtr ledger_ = std::make_shared<MemoryLedger>();
};

TEST_P(DiskStorageTest, PiecesOfAnySizeAndPlaceComeBack) {
  const uint32_t seed = 3;
  std::mt19937 random(seed);
  DiskStorage storage(folder_, kUnlimited, GetParam());
  const int64_t size = 30011;
  const auto block = storage.allocate(ledger_, size);
  std::vector<std::byte> expected(static_cast<size_t>(size));
  for (int i = 0; i < 60; ++i) {
    const auto at = static_cast<int64_t>(random() % size);
    std::vector<std::byte> piece(std::min<size_t>(random() % 9000, static_cast<size_t>(size - at)));
    for (std::byte& b : piece) b = static_cast<std::byte>(random() % 256);
    block->write(at, piece);
    std::ranges::copy(piece, expected.begin() + at);
  }
  for (int i = 0; i < 60; ++i) {
    const auto at = static_cast<int64_t>(random() % size);
    std::vector<std::byte> piece(std::min<size_t>(random() % 9000, static_cast<size_t>(size - at)));
    block->read(at, piece);
    EXPECT_TRUE(std::ranges::equal(piece, std::span(expected).subspan(at, piece.size()))) << "seed " << seed;
  }
}

TEST_P(DiskStorageTest, FilesGoWithTheirBlocks) {
  DiskStorage storage(folder_, kUnlimited, GetParam());
  {
    const auto a = storage.allocate(ledger_, 5000);
    const auto b = storage.allocate(ledger_, 1);
    EXPECT_EQ(files().size(), 2U);
    EXPECT_EQ(ledger_->current(Tier::disk), 5001);
  }
  EXPECT_TRUE(files().empty());
  EXPECT_EQ(ledger_->current(), 0);
  EXPECT_EQ(storage.used(), 0);
}

TEST_P(DiskStorageTest, ALostFileFailsItsTransferByNameAndNoOther) {
  const Hierarchy tiers({{.tier = Tier::disk,
                          .link = link_named("real", "test"),
                          .folder = folder_,
                          .direct_access = GetParam() == DiskAccess::direct}});
  const auto broken = tiers.storage(Tier::disk).allocate(ledger_, 50000);
  const std::filesystem::path file = files().front();
  const auto sound = tiers.storage(Tier::disk).allocate(ledger_, 50000);
  std::filesystem::resize_file(file, 4096);

  std::vector<std::byte> memory(100000);
  Transfer fails = tiers.load(Tier::disk).read(broken, {{.at = 0, .memory = memory.data(), .bytes = 50000}});
  Transfer works = tiers.load(Tier::disk).read(sound, {{.at = 0, .memory = memory.data() + 50000, .bytes = 50000}});
  try {
    fails.wait();
    FAIL() << "a file of 4096 bytes gave 50000";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(file.string()), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("ends before byte"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(works.wait());
}

TEST_P(DiskStorageTest, AFullTierIsRefusedBeforeAFileIsMade) {
  DiskStorage storage(folder_, 1000, GetParam());
  EXPECT_THROW((void)storage.allocate(ledger_, 1001), TierFull);
  EXPECT_TRUE(files().empty());
}

TEST_P(DiskStorageTest, ABlockThatCannotBeMadeGivesItsRoomBack) {
  DiskStorage storage(folder_, kUnlimited, GetParam());
  std::filesystem::remove_all(folder_);
  try {
    (void)storage.allocate(ledger_, 1000);
    FAIL() << "the folder is gone";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(folder_.string()), std::string::npos) << error.what();
  }
  EXPECT_EQ(storage.used(), 0);
  EXPECT_EQ(ledger_->current(), 0);
}

INSTANTIATE_TEST_SUITE_P(Access, DiskStorageTest, ::testing::Values(DiskAccess::buffered, DiskAccess::direct),
                         [](const auto& info) { return info.param == DiskAccess::direct ? "direct" : "buffered"; });

TEST(DiskStorage, AFolderThatCannotBeMadeIsNamed) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("kvarena_disk_tier_file_{}", ::getpid());
  std::ofstream(file) << "not a folder";
  EXPECT_THROW(DiskStorage(file / "below", kUnlimited, DiskAccess::buffered), UserError);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace kvarena::storage
