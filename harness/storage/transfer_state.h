#pragma once
// State that a transfer's handle and its link's thread share.

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>

#include "harness/storage/transfer.h"

namespace kvarena::storage {

enum class Phase {
  queued,
  moving,    // memory at both ends is in use
  settling,  // moved; the emulated link still takes its time
  complete,
};

struct Transfer::State {
  const int64_t bytes;
  const int64_t pieces;
  const std::string link;  // its name, for messages

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  Phase phase = Phase::queued;
  bool abandoned = false;
  std::exception_ptr error;
  double link_seconds = 0;
  std::function<void()> move;  // holds the block; gone once moved or given up, so that the block can die then

  State(int64_t bytes, int64_t pieces, std::string link, std::function<void()> move)
      : bytes(bytes), pieces(pieces), link(std::move(link)), move(std::move(move)) {}
};

}  // namespace kvarena::storage
