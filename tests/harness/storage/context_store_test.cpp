// The store with real bytes on real tiers: it never gives bytes that were not made for the context and form it names.

#include "harness/storage/context_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "harness/core/error.h"
#include "harness/core/random.h"
#include "tests/support/temporary_folder.h"

namespace kvarena::storage {
namespace {

using kvarena::testing::TemporaryFolder;
using storage::Choice;
using storage::Context;
using storage::Form;

/// Least recently used first.
class Recency final : public storage::VictimPolicy {
 public:
  bool leaves_before(const Context& a, const Context& b) const override { return a.last_access < b.last_access; }
  bool promotes_on_hit() const override { return true; }
};

/// Likewise, and all are placed anew on demand: what was used goes up then.
class RecencyAnew final : public storage::VictimPolicy {
 public:
  bool leaves_before(const Context& a, const Context& b) const override { return a.last_access < b.last_access; }
  bool rearranges() const override { return true; }
};

/// Puts all where it is told.
class Told final : public storage::Policy {
 public:
  Choice first(const Context&, std::span<const StorageTier>) const override { return place; }
  storage::Step make_room(const storage::View&, int64_t) const override { throw InternalError("there is room"); }
  bool rearranges() const override { return true; }
  Choice place;
};

/// Halves a context before it lets it go.
class Halving final : public storage::Policy {
 public:
  storage::Step make_room(const storage::View& view, int64_t tier) const override {
    size_t oldest = view.contexts.size();
    for (size_t i = 0; i < view.contexts.size(); ++i) {
      const Context& context = view.contexts[i];
      if (context.at.tier != tier) continue;
      if (context.at.form == 0) return {.context = i, .to = {.form = 1, .tier = tier}};
      if (oldest == view.contexts.size() || context.last_access < view.contexts[oldest].last_access) oldest = i;
    }
    return {.context = oldest, .to = {.form = 1, .tier = tier + 1}};
  }
  bool rearranges() const override { return true; }
};

/// Bytes that tell their context and form.
std::vector<std::byte> made(const std::string& key, const Form& form) {
  const RandomStream random(static_cast<uint64_t>(form.bytes), key + form.method);
  std::vector<std::byte> bytes(static_cast<size_t>(form.bytes));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random.below(256, i));
  return bytes;
}

std::function<std::vector<std::byte>()> makes(const std::string& key, const Form& form) {
  return [key, form] { return made(key, form); };
}

std::vector<Form> forms(int64_t bytes) {
  return {{.bytes = bytes}, {.method = "half", .keep = 0.5, .bytes = bytes / 2, .quality = 0.9}};
}

class Store : public ::testing::Test {
 protected:
  Store() : hierarchy_(std::make_shared<const storage::Hierarchy>(settings())) {}

  static std::vector<storage::TierSettings> settings() {
    std::vector<storage::TierSettings> list;
    for (const Tier tier : {Tier::host, Tier::remote}) {
      storage::TierSettings one;
      one.tier = tier;
      list.push_back(one);
    }
    return list;
  }
  [[nodiscard]] std::unique_ptr<ContextStore> open(const storage::Policy& policy, int64_t host, int64_t disk) const {
    const std::vector<StoreTier> tiers = {
        {.tier = Tier::host, .books = {.name = "host", .capacity = host, .bandwidth = 1e9}},
        {.tier = Tier::disk, .books = {.name = "disk", .capacity = disk, .bandwidth = 1e8}},
        {.tier = Tier::remote, .books = {.name = "remote", .bandwidth = 1e7}}};
    return std::make_unique<ContextStore>(tiers, hierarchy_, scratch_.path() / "contexts", policy, makes);
  }

  TemporaryFolder scratch_;
  storage::HierarchyPtr hierarchy_;
  Recency recency_;
  Halving halving_;
};

TEST_F(Store, ContextsMoveDownAndComeBackWithTheirBytes) {
  const auto store = open(recency_, 1000, 1000);
  for (int i = 0; i < 3; ++i) store->put(fmt::format("{}", i), forms(900), i);
  EXPECT_EQ(store->find("2")->at, (Choice{.form = 0, .tier = 0}));
  EXPECT_EQ(store->find("1")->at, (Choice{.form = 0, .tier = 1}));
  EXPECT_EQ(store->find("0")->at, (Choice{.form = 0, .tier = 2}));
  EXPECT_EQ(store->find("3"), nullptr);
  const auto fetched = store->fetch("0", 10);
  ASSERT_TRUE(fetched.has_value());
  EXPECT_EQ(fetched->tier, Tier::remote);
  EXPECT_EQ(fetched->bytes, made("0", forms(900)[0]));
  EXPECT_EQ(store->find("0")->at.tier, 0) << "it came up";
  EXPECT_EQ(store->fetch("0", 11)->tier, Tier::host);
  EXPECT_FALSE(store->fetch("nobody", 12).has_value());
  EXPECT_EQ(store->counts().hits.at(Tier::remote), 1);
  EXPECT_EQ(store->counts().hits.at(Tier::host), 1);
  EXPECT_EQ(store->counts().misses, 1);
}

TEST_F(Store, ReadingsComeBesideEachOtherWhereTheirLinksDiffer) {
  std::vector<storage::TierSettings> slow = settings();
  for (storage::TierSettings& one : slow) one.link = {.name = "slow", .bytes_per_s = 1800};  // 0.5 s
  hierarchy_ = std::make_shared<const storage::Hierarchy>(slow);
  const auto store = open(recency_, 900, 0);
  store->put_all({{.key = "0", .forms = forms(900)}, {.key = "1", .forms = forms(900)}}, 0);
  const auto start = std::chrono::steady_clock::now();
  std::vector<Reading> readings = {*store->ask("0"), *store->ask("1")};
  EXPECT_NE(readings[0].tier, readings[1].tier);
  for (const Reading& reading : readings) EXPECT_TRUE(reading.bytes([](auto) {}));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GE(seconds, 0.5);
  EXPECT_LT(seconds, 0.95);
}

/// Memory that notes on which threads its blocks are read.
class ReadBy final : public Storage {
 public:
  ReadBy(Tier tier, std::vector<std::thread::id>& readers)
      : Storage(tier, kUnlimited), memory_(tier, kUnlimited), readers_(&readers) {}

 protected:
  [[nodiscard]] std::shared_ptr<Block> make_block(const LedgerPtr& ledger, int64_t bytes) override {
    return std::make_shared<Noting>(memory_.allocate(ledger, bytes), *readers_);
  }

 private:
  struct Noting final : Block {
    Noting(std::shared_ptr<Block> noted, std::vector<std::thread::id>& by) : block(std::move(noted)), readers(&by) {}
    [[nodiscard]] int64_t bytes() const override { return block->bytes(); }
    [[nodiscard]] std::span<const std::byte> memory() const override { return block->memory(); }
    void write(int64_t at, std::span<const std::byte> from) override { block->write(at, from); }
    void read(int64_t at, std::span<std::byte> to) const override {
      readers->push_back(std::this_thread::get_id());
      block->read(at, to);
    }
    std::shared_ptr<Block> block;
    std::vector<std::thread::id>* readers;
  };
  MemoryStorage memory_;
  std::vector<std::thread::id>* readers_;
};

TEST_F(Store, TheLinkCopiesTheBytesWhoeverTakesThem) {
  std::vector<std::thread::id> readers;
  std::vector<storage::TierSettings> list = settings();
  list.push_back({.tier = Tier::device});
  for (storage::TierSettings& one : list) {
    one.memory = [&readers, tier = one.tier](int64_t) { return std::make_unique<ReadBy>(tier, readers); };
  }
  for (const double rate : {0.0, 9000.0}) {  // the one takes what copying takes, the other 0.1 s
    readers.clear();
    list[0].link = list[1].link = {.name = "one", .bytes_per_s = rate};
    hierarchy_ = std::make_shared<const storage::Hierarchy>(list);
    const std::vector<StoreTier> tiers = {
        {.tier = Tier::device, .books = {.name = "device", .capacity = 900, .bandwidth = 1e9}},
        {.tier = Tier::host, .books = {.name = "host", .capacity = 900, .bandwidth = 1e8}},
        {.tier = Tier::remote, .books = {.name = "remote", .bandwidth = 1e7}}};
    ContextStore store(tiers, hierarchy_, "", recency_, makes);
    for (int i = 0; i < 2; ++i) store.put(fmt::format("{}", i), forms(900), i);
    const int64_t held = MemoryLedger::process().current(Tier::device);
    const Reading reading = *store.ask("0");
    ASSERT_EQ(reading.tier, Tier::host);
    const Link& link = hierarchy_->load(Tier::host);
    while (link.totals().transfers == 0) std::this_thread::yield();
    EXPECT_EQ(link.totals().bytes, 900);
    ASSERT_EQ(readers.size(), 1U) << "nobody has taken them";
    EXPECT_NE(readers[0], std::this_thread::get_id());
    EXPECT_EQ(MemoryLedger::process().current(Tier::device), held + 900) << "what came is counted";
    std::vector<std::byte> bytes;
    EXPECT_TRUE(reading.bytes([&](auto given) { bytes.assign(given.begin(), given.end()); }));
    EXPECT_EQ(bytes, made("0", forms(900)[0]));
    EXPECT_EQ(readers.size(), 1U) << "not copied again";
    EXPECT_EQ(MemoryLedger::process().current(Tier::device), held) << "and is gone";

    EXPECT_EQ(store.ask("1")->tier, Tier::device);
    EXPECT_EQ(store.get("1")->bytes, made("1", forms(900)[0]));
    EXPECT_EQ(hierarchy_->load(Tier::device).totals().transfers, 0) << "it lies there";
    EXPECT_EQ(readers.size(), 1U);
  }
}

TEST_F(Store, AReadingGivesTheBytesItWasAskedForWhereverTheyGoMeanwhile) {
  const auto store = open(recency_, 1000, 1000);
  for (int i = 0; i < 3; ++i) store->put(fmt::format("{}", i), forms(900), i);
  std::vector<Reading> readings;
  for (const char* key : {"0", "1", "2"}) readings.push_back(*store->ask(key));
  EXPECT_EQ(readings[1].tier, Tier::disk);
  store->use("0", 10);  // all three move
  store->put("1", forms(500), 11);
  for (size_t i = 0; i < 3; ++i) {
    std::vector<std::byte> bytes;
    std::thread([&] {
      EXPECT_TRUE(readings[i].bytes([&](auto given) { bytes.assign(given.begin(), given.end()); }));
    }).join();
    EXPECT_EQ(bytes, made(fmt::format("{}", i), forms(900)[0])) << i;
    store->came(fmt::format("{}", i), readings[i], true);
  }
  EXPECT_EQ(store->counts().hits.at(Tier::disk), 1);
  EXPECT_EQ(store->counts().hits.at(Tier::host), 1);
  EXPECT_EQ(store->counts().hits.at(Tier::remote), 1);
  EXPECT_EQ(store->counts().damaged, 0);
}

TEST_F(Store, WhoAsksDoesNotWaitForBytesThatMove) {
  std::vector<storage::TierSettings> slow = settings();
  for (storage::TierSettings& one : slow) one.link = {.name = "slow", .bytes_per_s = 1800};  // 0.5 s
  hierarchy_ = std::make_shared<const storage::Hierarchy>(slow);
  for (const bool whole : {true, false}) {
    const auto store = open(recency_, 900, 0);
    store->put("0", forms(900), 0);
    std::mutex lock;
    store->release_while_moving(&lock);
    std::promise<void> begun;
    bool moved = false;
    std::thread mover([&] {
      const std::lock_guard held(lock);
      begun.set_value();
      store->put("1", forms(900), 1);  // "0" goes down
      moved = true;
    });
    begun.get_future().wait();
    {
      const std::lock_guard held(lock);
      EXPECT_FALSE(moved);
      EXPECT_EQ(store->find("0")->at.tier, 2) << "where it goes";
      const Reading reading = *store->ask("0");
      EXPECT_EQ(reading.tier, Tier::host) << "where it lies";
      store->came("0", reading, whole);
    }
    mover.join();
    EXPECT_EQ(store->get("1")->bytes, made("1", forms(900)[0]));
    if (whole) {
      EXPECT_EQ(store->ask("0")->tier, Tier::remote);
    } else {
      EXPECT_EQ(store->find("0"), nullptr) << "forgotten on its way";
    }
  }
}

TEST_F(Store, WhatMovesIsReadOverItsLinkButWhatItsRequestHasRead) {
  const auto carried = [&](Tier tier) { return hierarchy_->load(tier).totals().bytes; };
  const RecencyAnew anew;
  auto store = open(anew, 900, 0);
  store->put("0", forms(900), 0);
  store->put("1", forms(900), 1);
  EXPECT_EQ(carried(Tier::host), 900) << "\"0\" went down";
  store->use("0", 2);
  EXPECT_EQ(carried(Tier::remote), 0) << "a use moves nothing here";
  store->rearrange();
  ASSERT_EQ(store->find("0")->at.tier, 0);
  EXPECT_EQ(carried(Tier::remote), 900) << "nobody has read it just now";
  EXPECT_EQ(carried(Tier::host), 1800);

  store.reset();
  store = open(recency_, 900, 0);
  store->put("0", forms(900), 0);
  store->put("1", forms(900), 1);
  ASSERT_TRUE(store->get("0").has_value());
  EXPECT_EQ(carried(Tier::remote), 1800) << "its request";
  store->use("0", 2);
  ASSERT_EQ(store->find("0")->at.tier, 0);
  EXPECT_EQ(carried(Tier::remote), 1800) << "not again for the move";
}

TEST_F(Store, AnotherFormIsMadeOfTheFirstFromWhereThatLies) {
  const auto carried = [&](Tier tier) { return hierarchy_->load(tier).totals().bytes; };
  Told told;
  told.place = {.form = 1, .tier = 0};
  const auto store = open(told, 5000, 5000);
  store->put("0", forms(900), 0);
  EXPECT_EQ(carried(Tier::remote), 0) << "whoever puts it has it";
  told.place = {.form = 0, .tier = 0};
  store->rearrange();
  EXPECT_EQ(carried(Tier::remote), 900) << "beside, on the last tier";
  EXPECT_EQ(carried(Tier::host), 0);
  told.place = {.form = 1, .tier = 2};
  store->rearrange();
  EXPECT_EQ(carried(Tier::remote), 900);
  EXPECT_EQ(carried(Tier::host), 900) << "what is held";
  EXPECT_EQ(store->get("0")->bytes, made("0", forms(900)[1]));
}

TEST_F(Store, NobodyWaitsForAFormThatIsMade) {
  std::mutex lock;
  std::unique_ptr<ContextStore> store;
  int free = 0, absent = 0;
  const auto looks = [&](const std::string& key, const Form& form) {
    return [&, key, form] {
      if (lock.try_lock()) {
        ++free;
        absent += store->ask(key) ? 0 : 1;
        lock.unlock();
      }
      return made(key, form);
    };
  };
  const std::vector<StoreTier> tiers = {
      {.tier = Tier::host, .books = {.name = "host", .capacity = 1000, .bandwidth = 1e9}},
      {.tier = Tier::remote, .books = {.name = "remote", .bandwidth = 1e7}}};
  store = std::make_unique<ContextStore>(tiers, hierarchy_, "", halving_, looks);
  store->release_while_moving(&lock);
  const std::lock_guard held(lock);
  store->put("0", forms(900), 0);
  EXPECT_EQ(free, 1);
  EXPECT_EQ(absent, 1) << "it is not there yet";
  store->put("1", forms(900), 1);
  EXPECT_EQ(store->find("0")->at.form, 1);
  EXPECT_EQ(free, 3) << "the new one, and half of the other";
  EXPECT_EQ(absent, 2);
  EXPECT_TRUE(store->ask("1").has_value());
}

TEST_F(Store, ReadyContextsAreThereAtOnceAndGoDownAsBytes) {
  /// Takes twice its bytes.
  struct Doubled final : ReadyContext {
    explicit Doubled(std::span<const std::byte> bytes) : held(bytes.begin(), bytes.end()) {}
    [[nodiscard]] int64_t bytes() const override { return 2 * std::ssize(held); }
    [[nodiscard]] std::vector<std::byte> stored() const override { return held; }
    std::vector<std::byte> held;
  };
  const auto carried = [&](Tier tier) { return hierarchy_->load(tier).totals().bytes; };
  const std::vector<StoreTier> tiers = {
      {.tier = Tier::device, .books = {.name = "device", .capacity = 1800, .bandwidth = 1e300, .ready = true}},
      {.tier = Tier::host, .books = {.name = "host", .capacity = 900, .bandwidth = 1e9}},
      {.tier = Tier::remote, .books = {.name = "remote", .bandwidth = 1e7}}};
  std::mutex lock;
  bool released = true;
  ContextStore store(tiers, hierarchy_, "", recency_, makes, [&](const Form&, std::span<const std::byte> bytes) {
    const bool free = lock.try_lock();
    if (free) lock.unlock();
    released = released && free;
    return std::make_shared<const Doubled>(bytes);
  });
  store.release_while_moving(&lock);
  const std::lock_guard held(lock);
  for (int i = 0; i < 3; ++i) store.put(fmt::format("{}", i), {{.bytes = 900, .ready_bytes = 1800}}, i);
  EXPECT_TRUE(released) << "nobody waits while one is made ready";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(store.find(fmt::format("{}", i))->at.tier, 2 - i);
  EXPECT_EQ(carried(Tier::host), 900) << "\"0\" went down twice, from the device over no link";
  const Reading reading = *store.ask("2");
  EXPECT_EQ(reading.tier, Tier::device);
  ASSERT_NE(reading.ready, nullptr);
  EXPECT_EQ(reading.ready->bytes(), 1800);
  store.came("2", reading, true);
  EXPECT_EQ(store.counts().hits.at(Tier::device), 1);
  EXPECT_EQ(store.ask("1")->ready, nullptr);
  store.use("0", 9);
  EXPECT_EQ(store.ask("0")->tier, Tier::device);
  for (int i = 0; i < 3; ++i) {
    const std::string key = fmt::format("{}", i);
    EXPECT_EQ(store.get(key)->bytes, made(key, {.bytes = 900})) << key;
  }
  EXPECT_EQ(store.books().used(0), 1800);
  EXPECT_EQ(store.books().used(1), 900);
}

TEST_F(Store, WhatIsReadToMoveTakesItsTimeAndNobodyWaits) {
  constexpr double kSeconds = 0.2;
  std::vector<storage::TierSettings> slow = settings();
  slow[0].link = {.name = "slow", .bytes_per_s = 900 / kSeconds};
  hierarchy_ = std::make_shared<const storage::Hierarchy>(slow);
  const RecencyAnew anew;
  const std::vector<StoreTier> tiers = {
      {.tier = Tier::host, .books = {.name = "host", .capacity = 900, .bandwidth = 1e9}},
      {.tier = Tier::disk,
       .books = {.name = "disk", .capacity = 5000, .bandwidth = 1e8},
       .disk_link = {.name = "disk", .bytes_per_s = 900 / kSeconds}},
      {.tier = Tier::remote, .books = {.name = "remote", .bandwidth = 1e7}}};
  for (const bool whole : {true, false}) {
    ContextStore store(tiers, hierarchy_, scratch_.path() / fmt::format("slow {}", whole), anew, makes);
    for (int i = 0; i < 2; ++i) store.put(fmt::format("{}", i), forms(900), i);
    store.use("0", 2);
    std::mutex lock;
    store.release_while_moving(&lock);
    std::promise<void> begun;
    double seconds = 0;
    std::thread mover([&] {
      const std::lock_guard held(lock);
      begun.set_value();
      const auto start = std::chrono::steady_clock::now();
      store.rearrange();  // "1" goes to the disk, "0" comes up from there and is written
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    });
    begun.get_future().wait();
    {
      const std::lock_guard held(lock);
      EXPECT_EQ(seconds, 0) << "they are under way";
      const Reading reading = *store.ask("1");
      EXPECT_EQ(reading.tier, Tier::host) << "where it lies";
      store.came("1", reading, whole);
    }
    mover.join();
    EXPECT_GE(seconds, 3 * kSeconds);
    EXPECT_EQ(store.get("0")->tier, Tier::host);
    EXPECT_EQ(store.folder()->keys(), whole ? std::vector<std::string>{"1"} : std::vector<std::string>{})
        << "no bytes of a context that was forgotten on its way";
  }
}

TEST_F(Store, AReadingOfDamagedBytesGivesNoneAndTheContextIsForgotten) {
  const auto store = open(recency_, 1000, 5000);
  for (int i = 0; i < 2; ++i) store->put(fmt::format("{}", i), forms(900), i);
  std::ofstream(store->folder()->file_of("0"), std::ios::binary | std::ios::in) << "x";
  const Reading reading = *store->ask("0");
  bool given = false;
  EXPECT_FALSE(reading.bytes([&](auto) { given = true; }));
  EXPECT_FALSE(given);
  store->came("0", reading, false);
  EXPECT_EQ(store->counts().damaged, 1);
  EXPECT_EQ(store->folder()->damage().wrong_files, 1);
  EXPECT_EQ(store->find("0"), nullptr);
  EXPECT_FALSE(store->ask("0").has_value());
}

TEST_F(Store, ReadsOfTheDiskShareItsRate) {
  const std::vector<StoreTier> tiers = {{.tier = Tier::disk,
                                         .books = {.name = "disk", .capacity = 1 << 20, .bandwidth = 1e5},
                                         .disk_link = {.name = "disk", .bytes_per_s = 1e5}},
                                        {.tier = Tier::remote, .books = {.name = "remote", .bandwidth = 1e7}}};
  ContextStore store(tiers, hierarchy_, scratch_.path() / "slow", recency_, makes);
  for (int i = 0; i < 3; ++i) store.put(fmt::format("{}", i), forms(2000), i);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([reading = *store.ask(fmt::format("{}", i))] { (void)reading.bytes([](auto) {}); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 3 * 2000 / 1e5);
}

TEST_F(Store, APolicyThatCompressesGetsTheOtherForm) {
  const auto store = open(halving_, 1000, 1000);
  store->put("a", forms(800), 0);
  store->put("b", forms(800), 1);
  EXPECT_EQ(store->find("a")->at, (Choice{.form = 1, .tier = 0}));
  EXPECT_EQ(store->fetch("a", 2)->bytes, made("a", forms(800)[1]));
  EXPECT_EQ(store->fetch("a", 2)->form.method, "half");
}

TEST_F(Store, DamageOnDiskIsAMissAndTheContextComesBackWhenPutAgain) {
  const auto store = open(recency_, 1000, 5000);
  for (int i = 0; i < 4; ++i) store->put(fmt::format("{}", i), forms(900), i);
  ASSERT_EQ(store->find("0")->at.tier, 1);
  std::ofstream(store->folder()->file_of("0"), std::ios::binary | std::ios::in) << "x";  // its first byte
  std::filesystem::remove(store->folder()->file_of("1"));
  EXPECT_FALSE(store->fetch("0", 10).has_value());
  EXPECT_FALSE(store->fetch("1", 11).has_value());
  EXPECT_EQ(store->counts().damaged, 2);
  EXPECT_EQ(store->find("0"), nullptr);
  store->put("0", forms(900), 12);
  EXPECT_EQ(store->fetch("0", 13)->bytes, made("0", forms(900)[0]));
  EXPECT_EQ(store->fetch("2", 14)->bytes, made("2", forms(900)[0])) << "others are untouched";
}

TEST_F(Store, ADiskThatTakesNothingCostsTheContextAndNothingElse) {
  const auto store = open(recency_, 1000, 5000);
  store->put("0", forms(900), 0);
  store->folder()->between_write_and_index = [] { throw UserError("no space left on device"); };
  store->put("1", forms(900), 1);  // "0" has to go to the disk
  EXPECT_EQ(store->counts().refused_writes, 1);
  EXPECT_EQ(store->find("0"), nullptr);
  EXPECT_EQ(store->fetch("1", 2)->bytes, made("1", forms(900)[0]));
  EXPECT_EQ(store->books().used(1), 0);
}

TEST_F(Store, AnotherRunIsRefusedAndTheNextOneStartsCold) {
  {
    const auto store = open(recency_, 1000, 5000);
    for (int i = 0; i < 3; ++i) store->put(fmt::format("{}", i), forms(900), i);
    EXPECT_THROW((void)open(recency_, 1000, 5000), UserError);
  }
  const auto store = open(recency_, 1000, 5000);
  EXPECT_FALSE(store->fetch("0", 0).has_value());
  EXPECT_TRUE(store->folder()->keys().empty());
}

TEST_F(Store, RandomUseNeverGivesWrongBytes) {
  for (uint64_t seed = 0; seed < 2; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomStream random(seed, "store");
    const storage::Policy& policy = seed % 2 == 0 ? static_cast<const storage::Policy&>(recency_) : halving_;
    const auto store = open(policy, 3000, 4000);
    for (int64_t event = 0; event < 150; ++event) {
      const auto draw = static_cast<uint64_t>(10 * event);
      const std::string key = fmt::format("context {}", random.below(25, draw));
      const double kind = random.uniform(draw + 1);
      const auto now = static_cast<double>(event);
      if (kind < 0.3) {
        store->put(key, forms(2 + 2 * static_cast<int64_t>(random.below(600, draw + 2))), now);
      } else if (kind < 0.9) {
        const auto fetched = store->fetch(key, now);
        if (fetched) {
          ASSERT_EQ(fetched->bytes, made(key, fetched->form)) << key;
        }
      } else if (kind < 0.95) {
        store->rearrange();
      } else if (const auto* const context = store->find(key); context != nullptr && context->at.tier == 1) {
        std::filesystem::remove(store->folder()->file_of(key));  // somebody tidies up
      }
      for (const int64_t tier : {0, 1}) {
        ASSERT_LE(store->books().used(tier), store->books().tiers()[static_cast<size_t>(tier)].capacity);
      }
      ASSERT_EQ(store->folder()->bytes(), store->books().used(1)) << "event " << event;
    }
  }
}

}  // namespace
}  // namespace kvarena::storage
