#pragma once
// Which requests are in the next pass: continuous batching under a budget of cache bytes.
// Iteration-level scheduling: Yu et al. 2022, OSDI (Orca), section 3.1; prompts in chunks beside decoding steps:
// Agrawal et al. 2023, arXiv:2308.16369 (Sarathi), section 4.

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/engine/serving/admission.h"

namespace kvarena::serving {

struct BatchSettings {
  int64_t cache_bytes = std::numeric_limits<int64_t>::max();  // budget for the caches of all admitted requests
  int64_t pass_tokens = 512;                                  // steps and prompt tokens of one pass together
  int64_t max_running = 64;                                   // admitted requests; below pass_tokens
};

/// Contents of one pass.
struct PassPlan {
  struct Chunk {
    int64_t request = 0;
    int64_t tokens = 0;  // of its prompt
  };
  /// Room that the pass leaves beside its requests.
  struct Room {
    int64_t requests = 0;  // until max_running
    int64_t tokens = 0;    // until pass_tokens
    int64_t bytes = 0;     // of the budget, not promised
  };
  std::vector<int64_t> steps;  // requests past their prompt, each with whatever it feeds next
  std::vector<Chunk> chunks;
  Room room;
  double at_s = 0;  // when it begins, on the run's clock

  [[nodiscard]] bool empty() const { return steps.empty() && chunks.empty(); }
};

/// First come, first served: a request is admitted when what it may come to hold fits (admission.h), and none overtakes
/// another. So none starves, and the reservations never exceed the budget as long as hold() only ever shrinks them.
class BatchSchedule {
 public:
  /// Throws UserError when a pass could not hold a step of every running request and a token of a prompt.
  explicit BatchSchedule(const BatchSettings& settings);

  /// Queues a request that may come to hold `bytes` while its prompt of `prompt_tokens` is processed and compressed.
  /// Returns why it is refused, "" when it is not: alone it would exceed the budget.
  [[nodiscard]] std::string submit(int64_t request, int64_t prompt_tokens, int64_t bytes);
  /// Admits from the queue what fits and `may_have` so many bytes now; returns it in order.
  std::vector<int64_t> admit(const std::function<bool(int64_t bytes)>& may_have = {});
  /// Every running request's step, then prompts in order of admission in what is left of the pass.
  [[nodiscard]] PassPlan next() const;
  /// `tokens` of the request's prompt went by.
  void prefilled(int64_t request, int64_t tokens);
  /// Corrects what is left of its prompt.
  void correct(int64_t request, int64_t prompt_left);
  /// From now on the request may come to hold `bytes`: what its method leaves of the prompt, and its answer.
  void hold(int64_t request, int64_t bytes);
  /// Finished, failed or cancelled, from whatever state.
  void leave(int64_t request);

  [[nodiscard]] int64_t waiting() const { return static_cast<int64_t>(queue_.size()); }
  [[nodiscard]] int64_t running() const { return static_cast<int64_t>(running_.size()); }
  [[nodiscard]] int64_t reserved_bytes() const { return memory_->promised(); }
  [[nodiscard]] int64_t peak_reserved_bytes() const { return memory_->peak_promised(); }
  /// Room of the budget, which others may be promised too.
  [[nodiscard]] const std::shared_ptr<Admission>& memory() const { return memory_; }

 private:
  struct Waiting {
    int64_t request = 0;
    int64_t prompt_left = 0;
    Promise promise;
  };
  struct Running {
    int64_t prompt_left = 0;
    int64_t order = 0;  // of admission
    Admission::Place place;
  };
  BatchSettings settings_;
  std::shared_ptr<Admission> memory_;
  std::deque<Waiting> queue_;
  std::map<int64_t, Running> running_;  // by request
  int64_t admitted_ = 0;
};

}  // namespace kvarena::serving
