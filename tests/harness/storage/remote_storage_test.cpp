// Blocks in a store behind a socket: what was written comes back, what the wire carried is what was asked for, a rate
// is the sender's, and whatever goes wrong is an error in time.

#include "harness/storage/remote/remote_storage.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <thread>

#include "harness/storage/remote/frames.h"
#include "harness/storage/remote/store_server.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace kvarena::storage {
namespace {

using testing::error_of;

constexpr int64_t kBytes = 300'001;  // several pieces
constexpr int64_t kCapacity = int64_t{1} << 21;
constexpr double kNoRate = 0;
constexpr double kShort = 0.3;  // seconds of patience

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<std::byte> content(int64_t bytes) {
  std::vector<std::byte> all(static_cast<size_t>(bytes));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(i * 7 % 251);
  return all;
}

/// A wire between clients and a store: it counts what it carries towards clients, and may spoil that. The store's
/// answer to a Hello is the first of these bytes on each connection.
class Wire {
 public:
  /// Changes the byte at this place of a connection, or nothing more than these bytes come; -1: never.
  struct Fault {
    int64_t flips = -1;
    int64_t closes = -1;
    int64_t stalls = -1;
  };
  Wire(std::string store, Fault fault) : store_(std::move(store)), fault_(fault), listener_("127.0.0.1:0") {
    threads_.emplace_back([this] { take(); });
  }
  ~Wire() {
    over_ = true;
    listener_.shut_down();
    threads_.front().join();  // which starts the others
    for (const Socket& socket : sockets_) socket.shut_down();
    threads_.pop_front();
    for (std::thread& thread : threads_) thread.join();
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  [[nodiscard]] const std::string& address() const { return listener_.address(); }
  [[nodiscard]] int64_t carried() const { return carried_; }

 private:
  void take() {
    while (std::optional<Socket> client = listener_.accept()) {
      const Socket& near = sockets_.emplace_back(std::move(*client));
      const Socket& far = sockets_.emplace_back(Socket::connect(store_, 60));
      threads_.emplace_back([&] { carry(near, far, [](std::byte&) { return true; }); });
      threads_.emplace_back([&] {
        int64_t at = 0;
        carry(far, near, [&, this](std::byte& byte) {
          if (at == fault_.flips) byte ^= std::byte{1};
          if (at == fault_.closes) return false;
          while (at == fault_.stalls && !over_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          ++at;
          ++carried_;
          return true;
        });
      });
    }
  }
  static void carry(const Socket& from, const Socket& to, const std::function<bool(std::byte&)>& pass) {
    try {
      std::byte byte{};
      while (from.receive_unless_closed({&byte, 1}) && pass(byte)) to.send({&byte, 1});
    } catch (const UserError&) {
    }
    from.shut_down();
    to.shut_down();
  }

  std::string store_;
  Fault fault_;
  std::atomic<bool> over_ = false;
  std::atomic<int64_t> carried_ = 0;
  Listener listener_;
  std::list<Socket> sockets_;
  std::list<std::thread> threads_;  // the one that takes connections first
};

std::shared_ptr<StoreLine> line_to(const std::string& address, double rate = kNoRate, double patience = 60) {
  return std::make_shared<StoreLine>(address, rate, patience);
}

std::shared_ptr<Block> filled(RemoteStorage& storage, const LedgerPtr& ledger, int64_t bytes = kBytes) {
  auto block = storage.allocate(ledger, bytes);
  block->write(0, content(bytes));
  return block;
}

class RemoteStorages : public ::testing::Test {
 protected:
  StoreServer server_{"127.0.0.1:0", kCapacity};
  LedgerPtr ledger_ = std::make_shared<MemoryLedger>();
};

TEST_F(RemoteStorages, GiveBackWhatWasWrittenOverEitherSocket) {
  const testing::TemporaryFolder folder;
  StoreServer at_path((folder / "socket").string(), kCapacity);
  for (StoreServer* server : {&server_, &at_path}) {
    SCOPED_TRACE(server->address());
    RemoteStorage storage(line_to(server->address()));
    const auto block = filled(storage, ledger_);
    const auto small = filled(storage, ledger_, 3);
    EXPECT_EQ(ledger_->current(Tier::remote), kBytes + 3);
    EXPECT_EQ(server->used(), kBytes + 3);
    std::vector<std::byte> part(290'000);
    block->write(5, std::span(part).first(2));
    std::vector<std::byte> expected = content(kBytes);
    expected[5] = expected[6] = std::byte{0};
    block->read(1, part);
    EXPECT_TRUE(std::ranges::equal(part, std::span(expected).subspan(1, part.size())));
    std::vector<std::byte> all(static_cast<size_t>(kBytes));
    line_to(server->address())->read(*block, 0, all);
    EXPECT_EQ(all, expected);
  }
  EXPECT_EQ(ledger_->current(Tier::remote), 0);
  EXPECT_EQ(server_.totals().reads, 2);
  EXPECT_EQ(server_.totals().bytes, kBytes + 290'000);
}

TEST_F(RemoteStorages, PutTheBlockAFrameAndAChecksumOnTheWire) {
  const Wire wire(server_.address(), {});
  RemoteStorage storage(line_to(server_.address()));
  const auto block = filled(storage, ledger_);
  const auto line = line_to(wire.address());
  std::vector<std::byte> all(static_cast<size_t>(kBytes));
  line->read(*block, 0, all);
  line->read(*block, 0, std::span(all).first(10));
  EXPECT_EQ(wire.carried(), static_cast<int64_t>(3 * sizeof(StoreReply) + 2 * sizeof(Crc)) + kBytes + 10)
      << "an answer to the Hello, two to reads, on one connection";
}

TEST_F(RemoteStorages, HoldBackWhatALineHasARateFor) {
  RemoteStorage storage(line_to(server_.address()));
  const auto block = filled(storage, ledger_);
  std::vector<std::byte> all(static_cast<size_t>(kBytes));
  const auto slow = line_to(server_.address(), kBytes / 0.4);
  const double alone = seconds_of([&] { slow->read(*block, 0, all); });
  EXPECT_GE(alone, 0.4);
  EXPECT_EQ(all, content(kBytes));
  EXPECT_LT(seconds_of([&] { block->read(0, all); }), 0.4) << "another line of the same store";
  // Reads that are under way together have connections, and so rates, of their own.
  std::vector<std::byte> other(static_cast<size_t>(kBytes));
  const double both = seconds_of([&] {
    std::thread second([&] { slow->read(*block, 0, other); });
    slow->read(*block, 0, all);
    second.join();
  });
  EXPECT_GE(both, 0.4);
  EXPECT_LT(both, 0.8);
  const double rate = measured_rate(*line_to(server_.address(), kBytes / 0.1), *block);
  EXPECT_LE(rate, kBytes / 0.1);
  EXPECT_GT(rate, kBytes / 0.2);
}

TEST_F(RemoteStorages, SayWhatTheWireDid) {
  RemoteStorage storage(line_to(server_.address()));
  const auto block = filled(storage, ledger_);
  std::vector<std::byte> all(static_cast<size_t>(kBytes));
  constexpr int64_t kAnswers = 2 * sizeof(StoreReply);  // to the Hello and the read, before the block
  const struct {
    Wire::Fault fault;
    const char* said;
  } cases[] = {{{.flips = kAnswers + 280'000}, "bytes of another checksum"},
               {{.flips = kAnswers + kBytes}, "bytes of another checksum"},
               {{.flips = kAnswers - 8}, "expected 300001, as asked for"},
               {{.closes = kAnswers + 100'000}, "it closed with 162144 bytes to come"},
               {{.closes = kAnswers}, "it closed with 262144 bytes to come"},
               {{.closes = kAnswers - 10}, "it closed with 10 bytes to come"},
               {{.stalls = kAnswers + kBytes - 2}, "2 bytes did not come: nothing came in time"}};
  for (const auto& [fault, said] : cases) {
    SCOPED_TRACE(said);
    const Wire wire(server_.address(), fault);
    const auto line = line_to(wire.address(), kNoRate, fault.stalls < 0 ? 60 : kShort);
    const std::string error = error_of([&] { line->read(*block, 0, all); });
    EXPECT_NE(error.find("store " + wire.address()), std::string::npos) << error;
    EXPECT_NE(error.find(said), std::string::npos) << error;
    EXPECT_EQ(error_of([&] { line->read(*block, 0, all); }), error) << "at once";
  }
  const Wire mute(server_.address(), {.stalls = 0});
  EXPECT_NE(error_of([&] { line_to(mute.address(), kNoRate, kShort); }).find("nothing came in time"),
            std::string::npos);
}

TEST_F(RemoteStorages, SayWhereNoStoreIs) {
  std::string gone;
  {
    const StoreServer server("127.0.0.1:0", kCapacity);
    gone = server.address();
  }
  EXPECT_NE(error_of([&] { line_to(gone); }).find("cannot be reached: Connection refused"), std::string::npos);
  EXPECT_NE(error_of([] { line_to("/nowhere/socket"); }).find("No such file"), std::string::npos);
  EXPECT_NE(error_of([] { line_to("localhost"); }).find("found no port"), std::string::npos);
  EXPECT_NE(error_of([] { line_to("/" + std::string(200, 'x')); }).find("201 characters"), std::string::npos);
  EXPECT_NE(error_of([] { StoreServer("0.0.0.0:0", 1); }).find("other machines reach"), std::string::npos);
  EXPECT_NE(error_of([&] { StoreServer(server_.address(), 1); }).find("already in use"), std::string::npos);
}

TEST_F(RemoteStorages, HaveTheRoomOfTheStore) {
  RemoteStorage storage(line_to(server_.address()));
  const auto block = filled(storage, ledger_);
  try {
    (void)storage.allocate(ledger_, kCapacity);
    FAIL() << "more than the store has";
  } catch (const TierFull& full) {
    EXPECT_NE(std::string(full.what()).find("2097152 bytes asked for beside 300001 in use"), std::string::npos);
  }
  EXPECT_EQ(storage.used(), kBytes);
  EXPECT_EQ(server_.used(), kBytes);
  filled(storage, ledger_, kCapacity - kBytes);  // and released
  EXPECT_EQ(server_.used(), kBytes);
}

TEST_F(RemoteStorages, LeaveNothingInTheStoreWhoeverCalls) {
  {
    const Socket client = Socket::connect(server_.address(), 60);
    client.send(frame_bytes(Hello{}));
    StoreReply reply;
    client.receive(frame_room(reply));
    client.send(frame_bytes(StoreRequest{.operation = StoreOperation::allocate, .bytes = 1000}));
    client.receive(frame_room(reply));
    EXPECT_EQ(server_.used(), 1000);
    client.send(
        frame_bytes(StoreRequest{.operation = StoreOperation::read, .block = reply.block, .at = 999, .bytes = 2}));
    client.receive(frame_room(reply));
    EXPECT_EQ(reply.status, StoreStatus::refused);
  }  // ends without releasing
  for (int i = 0; i < 2000 && server_.used() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(server_.used(), 0);
  const Socket stranger = Socket::connect(server_.address(), 60);
  stranger.send(std::as_bytes(std::span("GET / HTTP/1.1\r\n\r\n")));
  std::byte answer{};
  EXPECT_FALSE(stranger.receive_unless_closed({&answer, 1}));
}

TEST(StoreServers, EndWhileTheySend) {
  auto server = std::make_unique<StoreServer>("127.0.0.1:0", kCapacity);
  RemoteStorage storage(line_to(server->address()));
  const auto block = filled(storage, std::make_shared<MemoryLedger>());
  const auto slow = line_to(server->address(), /*rate=*/5'000);  // a minute and more
  std::string error;
  std::thread reading([&] {
    std::vector<std::byte> all(static_cast<size_t>(kBytes));
    error = error_of([&] { slow->read(*block, 0, all); });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(seconds_of([&] { server.reset(); }), 10);
  reading.join();
  EXPECT_NE(error.find("it closed with"), std::string::npos) << error;
}

}  // namespace
}  // namespace kvarena::storage
