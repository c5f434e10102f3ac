#include "harness/storage/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/storage/transfer_state.h"

namespace kvarena::storage {
namespace {

/// Pieces that do not adjoin the one before, at both ends.
template <class Piece>
int64_t separate_pieces(const std::vector<Piece>& pieces) {
  int64_t count = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool adjoins = i > 0 && pieces[i].at == pieces[i - 1].at + pieces[i - 1].bytes &&
                         pieces[i].memory == pieces[i - 1].memory + pieces[i - 1].bytes;
    if (!adjoins) ++count;
  }
  return count;
}

}  // namespace

Link::Link(LinkSpec spec, LinkFault fault)
    : spec_(std::move(spec)), fault_(std::move(fault)), free_at_(Clock::now()), worker_([this] { work(); }) {}

Link::~Link() {
  std::shared_ptr<Transfer::State> running;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    running = running_;
  }
  work_.notify_all();
  if (running) {
    const std::lock_guard lock(running->mutex);
    running->abandoned = true;
    running->changed.notify_all();
  }
  worker_.join();
}

template <class Piece>
Transfer Link::submit(const std::vector<Piece>& pieces, int64_t block_bytes, std::function<void()> move) {
  int64_t bytes = 0;
  for (const Piece& piece : pieces) {
    KVARENA_ASSERT(piece.at >= 0 && piece.bytes >= 0 && piece.at + piece.bytes <= block_bytes,
                   fmt::format("at={} bytes={} block={}", piece.at, piece.bytes, block_bytes));
    bytes += piece.bytes;
  }
  return carry(bytes, separate_pieces(pieces), std::move(move));
}

Transfer Link::carry(int64_t bytes, int64_t pieces, std::function<void()> move) {
  if (bytes == 0) return {};
  auto state = std::make_shared<Transfer::State>(bytes, pieces, spec_.name, std::move(move));
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({.state = state, .queued = Clock::now()});
  }
  work_.notify_one();
  return Transfer(std::move(state));
}

Transfer Link::read(std::shared_ptr<const Block> from, std::vector<ReadPiece> pieces) {
  const int64_t size = from->bytes();
  return submit(pieces, size, [from = std::move(from), pieces] {
    for (const ReadPiece& piece : pieces) from->read(piece.at, {piece.memory, static_cast<size_t>(piece.bytes)});
  });
}

Transfer Link::write(std::shared_ptr<Block> to, std::vector<WritePiece> pieces) {
  const int64_t size = to->bytes();
  return submit(pieces, size, [to = std::move(to), pieces] {
    for (const WritePiece& piece : pieces) to->write(piece.at, {piece.memory, static_cast<size_t>(piece.bytes)});
  });
}

LinkTotals Link::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

void Link::work() {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      running_.reset();
      work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      running_ = job.state;
      if (stopping_) {
        const std::lock_guard state_lock(job.state->mutex);
        job.state->error = std::make_exception_ptr(UserError(fmt::format("link {}: closed", spec_.name)));
      }
    }
    carry_out(job);
  }
}

void Link::carry_out(const Job& job) {
  Transfer::State& state = *job.state;
  std::function<void()> move;
  {
    const std::lock_guard lock(state.mutex);
    move = std::exchange(state.move, nullptr);
    if (state.abandoned || state.error) {
      move = nullptr;
      state.phase = Phase::complete;
      state.changed.notify_all();
      return;
    }
    state.phase = Phase::moving;
  }
  const Clock::time_point start = std::max(job.queued, free_at_);
  const auto planned = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(spec_.seconds(state.bytes, state.pieces)));
  std::exception_ptr error;
  try {
    if (fault_) fault_(totals().transfers);
    move();
  } catch (...) {
    error = std::current_exception();
  }
  move = nullptr;
  free_at_ = std::max(start + planned, Clock::now());
  const double seconds = std::chrono::duration<double>(free_at_ - start).count();
  {
    const std::lock_guard lock(mutex_);
    ++totals_.transfers;
    totals_.bytes += state.bytes;
    totals_.pieces += state.pieces;
    totals_.busy_seconds += seconds;
  }
  std::unique_lock lock(state.mutex);
  state.phase = Phase::settling;
  state.changed.notify_all();
  state.changed.wait_until(lock, free_at_, [&] { return state.abandoned; });
  state.error = error;
  state.link_seconds = seconds;
  state.phase = Phase::complete;
  state.changed.notify_all();
}

}  // namespace kvarena::storage
