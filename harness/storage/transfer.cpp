#include "harness/storage/transfer.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "harness/core/error.h"
#include "harness/storage/transfer_state.h"

namespace kvarena::storage {

Transfer::Transfer(Transfer&& other) noexcept
    : state_(std::move(other.state_)), waited_seconds_(std::exchange(other.waited_seconds_, 0)) {}

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  if (this == &other) return *this;
  abandon();
  state_ = std::move(other.state_);
  waited_seconds_ = std::exchange(other.waited_seconds_, 0);
  return *this;
}

Transfer::~Transfer() { abandon(); }

void Transfer::abandon() noexcept {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->abandoned = true;
  state_->move = nullptr;
  state_->changed.notify_all();
  state_->changed.wait(lock, [&] { return state_->phase != Phase::moving; });
  lock.unlock();
  state_.reset();
}

bool Transfer::done() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->phase == Phase::complete;
}

void Transfer::wait(double patience_s) {
  if (!state_) return;
  using Clock = std::chrono::steady_clock;
  const auto complete = [&] { return state_->phase == Phase::complete; };
  std::unique_lock lock(state_->mutex);
  if (!complete()) {
    const auto start = Clock::now();
    if (patience_s == kNoLimit) {
      state_->changed.wait(lock, complete);
    } else {
      state_->changed.wait_for(lock, std::chrono::duration<double>(patience_s), complete);
    }
    waited_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  }
  if (!complete()) {
    fail({.place = fmt::format("link {}", state_->link),
          .found = fmt::format("a transfer of {} bytes that is not complete after {} s", state_->bytes, patience_s),
          .expected = "its completion",
          .action = "the tier behind the link is slow or does not answer"});
  }
  if (state_->error) std::rethrow_exception(state_->error);
}

int64_t Transfer::bytes() const { return state_ ? state_->bytes : 0; }

int64_t Transfer::pieces() const { return state_ ? state_->pieces : 0; }

double Transfer::link_seconds() const {
  if (!state_) return 0;
  const std::lock_guard lock(state_->mutex);
  return state_->link_seconds;
}

Traffic Transfer::as_load() const {
  if (bytes() == 0) return {};
  return {.loaded_bytes = bytes(), .link_seconds = link_seconds(), .stalled_seconds = waited_seconds()};
}

}  // namespace kvarena::storage
