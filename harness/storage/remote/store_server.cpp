#include "harness/storage/remote/store_server.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <vector>

namespace kvarena::storage {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kConnections = 256;
constexpr double kPatience = 30;        // seconds that a client may take nothing
constexpr double kPieceSeconds = 0.01;  // that a piece takes at a limited rate

size_t piece_bytes(double bytes_per_s) {
  if (bytes_per_s <= 0) return kStorePiece;
  return static_cast<size_t>(std::clamp(bytes_per_s * kPieceSeconds, 1.0, static_cast<double>(kStorePiece)));
}

void reply(const Socket& socket, StoreReply reply) { socket.send(frame_bytes(reply)); }

void refuse(const Socket& socket, StoreStatus status, const std::string& why) {
  reply(socket, {.status = status, .bytes = std::ssize(why)});
  socket.send(std::as_bytes(std::span(why)));
}

}  // namespace

StoreServer::StoreServer(const std::string& address, int64_t capacity_bytes)
    : memory_(Tier::remote, capacity_bytes), listener_(address), listening_([this] { take_connections(); }) {}

StoreServer::~StoreServer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  listener_.shut_down();
  listening_.join();
  for (Connection& connection : connections_) connection.socket.shut_down();
  for (Connection& connection : connections_) connection.thread.join();
}

StoreTotals StoreServer::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

void StoreServer::take_connections() {
  while (std::optional<Socket> socket = listener_.accept()) {
    std::erase_if(connections_, [](Connection& connection) {
      if (!connection.ended) return false;
      connection.thread.join();
      return true;
    });
    if (connections_.size() >= kConnections) continue;  // which closes it
    socket->limit_sending(kPatience);
    Connection& connection = connections_.emplace_back(std::move(*socket));
    connection.thread = std::thread([this, &connection] { serve(connection); });
  }
}

/// Whatever a client does wrong ends its own connection.
void StoreServer::serve(Connection& connection) {
  try {
    Hello hello;
    connection.socket.receive(frame_room(hello));
    if (hello.protocol == Hello{}.protocol && hello.bytes_per_s >= 0) {
      connection.bytes_per_s = hello.bytes_per_s;
      reply(connection.socket, {});
      StoreRequest request;
      while (connection.socket.receive_unless_closed(frame_room(request))) answer(connection, request);
    }
  } catch (const UserError&) {
  }
  connection.socket.shut_down();
  while (!connection.allocated.empty()) release(connection, *connection.allocated.begin());
  connection.ended = true;
}

void StoreServer::answer(Connection& connection, const StoreRequest& request) {
  switch (request.operation) {
    case StoreOperation::allocate: return allocate(connection, request);
    case StoreOperation::write: return write(connection, request);
    case StoreOperation::read: return read(connection, request);
    case StoreOperation::release: release(connection, request.block); return reply(connection.socket, {});
  }
  fail({.place = "request", .found = "an unknown operation", .expected = "one of this version"});
}

void StoreServer::allocate(Connection& connection, const StoreRequest& request) {
  std::shared_ptr<Block> block;
  try {
    if (request.bytes < 1) return refuse(connection.socket, StoreStatus::refused, "a block of no bytes");
    block = memory_.allocate(ledger_, request.bytes);
  } catch (const TierFull& full) {
    return refuse(connection.socket, StoreStatus::full, full.what());
  } catch (const std::bad_alloc&) {
    return refuse(connection.socket, StoreStatus::full, "the machine has no memory left");
  }
  uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = next_++;
    blocks_[id] = std::move(block);
  }
  connection.allocated.insert(id);
  reply(connection.socket, {.block = id});
}

void StoreServer::write(Connection& connection, const StoreRequest& request) {
  const std::shared_ptr<Block> block = find(request);
  if (!block) fail({.place = "write", .found = "no such bytes", .expected = "bytes of a block"});
  std::vector<std::byte> piece(kStorePiece);
  Crc crc = 0, sent = 0;
  for (int64_t done = 0; done < request.bytes;) {
    const auto part = std::span(piece).first(std::min(piece.size(), static_cast<size_t>(request.bytes - done)));
    connection.socket.receive(part);
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
    block->write(request.at + done, part);
    done += std::ssize(part);
  }
  connection.socket.receive(frame_room(sent));
  if (crc == sent) return reply(connection.socket, {});
  refuse(connection.socket, StoreStatus::refused, "what came has another checksum than what was sent");
}

void StoreServer::read(Connection& connection, const StoreRequest& request) {
  const std::shared_ptr<Block> block = find(request);
  if (!block) {
    return refuse(connection.socket, StoreStatus::refused,
                  fmt::format("block {} has no {} bytes at {}", request.block, request.bytes, request.at));
  }
  reply(connection.socket, {.bytes = request.bytes});
  send_paced(connection, block->memory().subspan(static_cast<size_t>(request.at), static_cast<size_t>(request.bytes)));
  const std::lock_guard lock(mutex_);
  ++totals_.reads;
  totals_.bytes += request.bytes;
}

/// A piece has its time before the next one, or the checksum, is sent.
void StoreServer::send_paced(const Connection& connection, std::span<const std::byte> bytes) {
  const size_t piece = piece_bytes(connection.bytes_per_s);
  const auto start = Clock::now();
  Crc crc = 0;
  for (size_t done = 0; done < bytes.size();) {
    const auto part = bytes.subspan(done, std::min(piece, bytes.size() - done));
    connection.socket.send(part);
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
    done += part.size();
    if (connection.bytes_per_s <= 0) continue;
    const std::chrono::duration<double> due(static_cast<double>(done) / connection.bytes_per_s);
    std::unique_lock lock(mutex_);
    stopped_.wait_until(lock, start + std::chrono::duration_cast<Clock::duration>(due), [&] { return stopping_; });
    if (stopping_) fail({.place = "store", .found = "its end", .expected = "time to send"});
  }
  connection.socket.send(frame_bytes(crc));
}

/// The block where it has the bytes that a request names.
std::shared_ptr<Block> StoreServer::find(const StoreRequest& request) const {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(request.block);
  if (found == blocks_.end() || request.at < 0 || request.bytes < 0) return nullptr;
  const int64_t size = found->second->bytes();
  return request.at <= size && request.bytes <= size - request.at ? found->second : nullptr;
}

void StoreServer::release(Connection& connection, uint64_t block) {
  if (connection.allocated.erase(block) == 0) return;
  const std::lock_guard lock(mutex_);
  blocks_.erase(block);
}

}  // namespace kvarena::storage
