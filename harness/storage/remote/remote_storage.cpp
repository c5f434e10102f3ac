#include "harness/storage/remote/remote_storage.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "harness/core/failure.h"
#include "harness/storage/remote/frames.h"

namespace kvarena::storage {
namespace {

/// The reply to a request; throws what the store refused it with.
StoreReply reply_of(const Socket& socket) {
  StoreReply reply;
  socket.receive(frame_room(reply));
  if (reply.status == StoreStatus::done) return reply;
  std::string why(std::min<size_t>(static_cast<size_t>(reply.bytes), 1000), ' ');
  socket.receive(std::as_writable_bytes(std::span(why)));
  const std::string said = fmt::format("store {}: {}", socket.peer(), why);
  if (reply.status == StoreStatus::full) throw TierFull(said);
  throw UserError(said);
}

Socket open(const std::string& address, double bytes_per_s, double patience_s) {
  Socket socket = Socket::connect(address, patience_s);
  socket.send(frame_bytes(Hello{.bytes_per_s = bytes_per_s}));
  (void)reply_of(socket);
  return socket;
}

[[noreturn]] void damaged(const Socket& socket, const std::string& found, const std::string& expected) {
  fail({.place = fmt::format("store {}", socket.peer()), .found = found, .expected = expected});
}

void read_block(const Socket& socket, uint64_t block, int64_t at, std::span<std::byte> to) {
  socket.send(
      frame_bytes(StoreRequest{.operation = StoreOperation::read, .block = block, .at = at, .bytes = std::ssize(to)}));
  const StoreReply reply = reply_of(socket);
  if (reply.bytes != std::ssize(to)) {
    damaged(socket, fmt::format("{} bytes", reply.bytes), fmt::format("{}, as asked for", to.size()));
  }
  Crc crc = 0, sent = 0;
  for (size_t done = 0; done < to.size();) {
    const auto part = to.subspan(done, std::min(kStorePiece, to.size() - done));
    socket.receive(part);
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
    done += part.size();
  }
  socket.receive(frame_room(sent));
  if (crc != sent) damaged(socket, "bytes of another checksum", "the bytes that were stored");
}

}  // namespace

/// The connection that a storage's blocks are allocated, written and released over.
struct RemoteStorage::Connection {
  std::mutex mutex;
  Socket socket;
};

class RemoteStorage::RemoteBlock final : public Block {
 public:
  RemoteBlock(std::shared_ptr<Connection> connection, std::shared_ptr<StoreLine> line, uint64_t id, int64_t bytes,
              LedgerPtr ledger, std::shared_ptr<Capacity> room)
      : connection_(std::move(connection)),
        line_(std::move(line)),
        id_(id),
        bytes_(bytes),
        ledger_(std::move(ledger)),
        room_(std::move(room)) {
    ledger_->add(Tier::remote, bytes_);
  }
  ~RemoteBlock() override {
    (void)failure_of([&] { ask({.operation = StoreOperation::release, .block = id_}); });
    ledger_->add(Tier::remote, -bytes_);
    room_->give_back(bytes_);
  }
  RemoteBlock(const RemoteBlock&) = delete;
  RemoteBlock& operator=(const RemoteBlock&) = delete;

  [[nodiscard]] uint64_t id() const { return id_; }
  [[nodiscard]] int64_t bytes() const override { return bytes_; }
  void read(int64_t at, std::span<std::byte> to) const override { line_->read(*this, at, to); }
  void write(int64_t at, std::span<const std::byte> from) override {
    ask({.operation = StoreOperation::write, .block = id_, .at = at, .bytes = std::ssize(from)}, from);
  }

 private:
  void ask(const StoreRequest& request, std::span<const std::byte> bytes = {}) {
    const std::lock_guard lock(connection_->mutex);
    const Socket& socket = connection_->socket;
    socket.send(frame_bytes(request));
    if (!bytes.empty()) {
      socket.send(bytes);
      socket.send(frame_bytes(Crc{crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size())}));
    }
    (void)reply_of(socket);
  }

  std::shared_ptr<Connection> connection_;
  std::shared_ptr<StoreLine> line_;
  uint64_t id_;
  int64_t bytes_;
  LedgerPtr ledger_;
  std::shared_ptr<Capacity> room_;
};

StoreLine::StoreLine(std::string address, double bytes_per_s, double patience_s)
    : address_(std::move(address)), bytes_per_s_(bytes_per_s), patience_s_(patience_s) {
  idle_.push_back(open(address_, bytes_per_s_, patience_s_));
}

Socket StoreLine::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw UserError(failure_);
    if (!idle_.empty()) {
      Socket socket = std::move(idle_.back());
      idle_.pop_back();
      return socket;
    }
  }
  return open(address_, bytes_per_s_, patience_s_);
}

void StoreLine::read(const Block& block, int64_t at, std::span<std::byte> to) {
  const auto* remote = dynamic_cast<const RemoteStorage::RemoteBlock*>(&block);
  KVARENA_ASSERT(remote != nullptr, "a block of another storage");
  try {
    Socket socket = take();
    read_block(socket, remote->id(), at, to);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(socket));
  } catch (const UserError& error) {
    const std::lock_guard lock(mutex_);
    failure_ = error.what();
    throw;
  }
}

RemoteStorage::RemoteStorage(std::shared_ptr<StoreLine> line)
    : Storage(Tier::remote, kUnlimited),
      line_(std::move(line)),
      connection_(new Connection{.mutex = {}, .socket = open(line_->address(), 0, line_->patience_s())}) {}

std::shared_ptr<Block> RemoteStorage::make_block(const LedgerPtr& ledger, int64_t bytes) {
  uint64_t id = 0;
  {
    const std::lock_guard lock(connection_->mutex);
    connection_->socket.send(frame_bytes(StoreRequest{.operation = StoreOperation::allocate, .bytes = bytes}));
    id = reply_of(connection_->socket).block;
  }
  return std::make_shared<RemoteBlock>(connection_, line_, id, bytes, ledger, room());
}

double measured_rate(StoreLine& line, const Block& block) {
  std::vector<std::byte> bytes(static_cast<size_t>(block.bytes()));
  std::array<double, 3> seconds{};
  for (double& each : seconds) {
    const auto start = std::chrono::steady_clock::now();
    line.read(block, 0, bytes);
    each = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::ranges::sort(seconds);
  return static_cast<double>(block.bytes()) / seconds[1];
}

}  // namespace kvarena::storage
