#include "harness/device/ranks/nccl_exchange.h"

#include <fmt/format.h>

#include <utility>

#include "harness/core/error.h"

namespace kvarena::device {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::seconds kFarewell{5};  // for the last answer to arrive

}  // namespace

NcclExchange::NcclExchange(std::shared_ptr<const NcclLibrary> library, const NcclId& id, RankChannel& channel,
                           std::chrono::milliseconds answer)
    : library_(std::move(library)), channel_(&channel), answer_(answer) {
  const Share share = channel.share();
  check(library_->comm_init_rank(&comm_, static_cast<int>(share.ranks), id, static_cast<int>(share.rank)),
        "connecting the ranks' devices");
  watcher_ = std::thread([this] { watch(); });
}

NcclExchange::~NcclExchange() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kFarewell, [&] { return !waiting_; });
    ending_ = true;
  }
  changed_.notify_all();
  watcher_.join();
  // Where all is well nothing is under way any more: each input was answered, and each answer came.
  if (comm_ != nullptr) library_->comm_abort(comm_);
}

void NcclExchange::check(int result, const char* attempted) const {
  if (result == NcclLibrary::kSuccess) return;
  const Share share = channel_->share();
  fail({.place = fmt::format("the device of rank {} of {}", share.rank, share.ranks),
        .found = fmt::format("NCCL: {}: {}", attempted, library_->get_error_string(result)),
        .action = "NCCL_DEBUG=INFO in the environment makes NCCL say more"});
}

void NcclExchange::exchange(std::span<const PeerBuffer> out, std::span<const PeerBuffer> in,
                            kernels::CudaStream stream) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) throw UserError(failure_);
  try {
    queue(out, in, stream);
  } catch (const UserError& error) {
    abort(error.what());
    throw;
  }
  last_.record(stream);
  begun_ = Clock::now();
  waiting_ = true;
  changed_.notify_all();
}

void NcclExchange::queue(std::span<const PeerBuffer> out, std::span<const PeerBuffer> in, kernels::CudaStream stream) {
  check(library_->group_start(), "beginning a group of messages");
  for (const PeerBuffer& letter : in) {
    if (letter.count == 0) continue;
    check(library_->recv(letter.data, static_cast<size_t>(letter.count), NcclLibrary::kFloat32,
                         static_cast<int>(letter.other), comm_, stream),
          "receiving");
  }
  for (const PeerBuffer& letter : out) {
    if (letter.count == 0) continue;
    check(library_->send(letter.data, static_cast<size_t>(letter.count), NcclLibrary::kFloat32,
                         static_cast<int>(letter.other), comm_, stream),
          "sending");
  }
  check(library_->group_end(), "starting a group of messages");
}

void NcclExchange::abort(const std::string& why) {
  failure_ = why;
  library_->comm_abort(std::exchange(comm_, nullptr));
}

void NcclExchange::confirm() {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw UserError(failure_);
}

void NcclExchange::watch() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return waiting_ || ending_; });
    if (ending_) return;
    changed_.wait_for(lock, kLook, [] { return false; });
    waiting_ = comm_ != nullptr && !last_.reached();
    if (waiting_) {
      if (const std::string why = trouble(); !why.empty()) abort(why);
      waiting_ = comm_ != nullptr;
    }
    changed_.notify_all();
  }
}

std::string NcclExchange::trouble() {
  if (std::string gone = channel_->lost(); !gone.empty()) return gone;
  int result = NcclLibrary::kSuccess;
  library_->comm_get_async_error(comm_, &result);
  const Share share = channel_->share();
  const auto said = [&](const std::string& found) {
    return describe({.place = fmt::format("the device of rank {} of {}", share.rank, share.ranks),
                     .found = found,
                     .expected = fmt::format("rows of the other ranks within {} s",
                                             std::chrono::duration_cast<std::chrono::seconds>(answer_).count())});
  };
  if (result != NcclLibrary::kSuccess && result != NcclLibrary::kInProgress) {
    return said(fmt::format("NCCL: {}", library_->get_error_string(result)));
  }
  return Clock::now() - begun_ > answer_ ? said("no rows") : "";
}

}  // namespace kvarena::device
