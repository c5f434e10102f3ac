#pragma once
// Real passes for the serving loop: prompts in chunks, decoding steps, drafts and verifications of many requests in one
// ragged pass of the model.

#include <deque>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/engine/serving/scheduled_decoding.h"
#include "harness/engine/serving/serve.h"
#include "harness/engine/session/session.h"

namespace kvarena {

/// The cache of a prompt's first tokens, brought beside passes.
struct BroughtPrompt {
  std::function<KvCache()> cache;  // called once, in the pass that the prompt goes on in: what it takes is the pass's
  double seconds = 0;              // from asking until it was there
};

struct ServedRequest {
  std::vector<int32_t> prompt;
  const Method* method = nullptr;  // must outlive the engine
  SessionOptions options;
  /// Begins to bring the cache of the prompt's first `begun` tokens, when the request's first pass does. The prompt
  /// goes on in the first pass that begins after so many seconds as that took; others run meanwhile. Empty: the prompt
  /// is read from its first token.
  std::function<std::future<BroughtPrompt>()> begin;
  int64_t begun = 0;
  /// Bytes that it takes until the prompt goes on with it, those that it is made of too; empty: none that count.
  std::function<int64_t()> coming_bytes;
  /// Bytes that it brings over the link of full caches: where others' verifiers have a schedule, it begins when that
  /// gives it the link. 0: it comes another way.
  int64_t begin_bytes = 0;
  /// Makes the session, of a verifier with a schedule whose full cache lies behind the device, from the cache that was
  /// brought. Empty: the prompt is read on.
  std::function<std::unique_ptr<Session>(KvCache)> resume;
  /// For methods that reuse entries: which part of the prompt is context, and the memory that requests share. What it
  /// lacks of the prompt is computed first, in chunks, in passes that others share. Then entries are loaded, and tokens
  /// scored and chosen, beside passes; the prompt goes on in the first pass that begins after so many seconds as that
  /// took. A model that scores its own prompts does so in chunks in these passes. What is computed anew is read in
  /// chunks in passes that others share, or by itself and at once where the reuser narrows.
  PromptLayout layout;
  std::shared_ptr<ReuseMemory> memory;
  double patience_s = std::numeric_limits<double>::infinity();
  /// Told the logits that follow each token of the prompt, but for methods that reuse entries.
  LogitsSink on_prompt_logits;
};

/// Answer of a request and what it took.
struct ServedAnswer {
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::running;
  Activity activity;
  int64_t resident_bytes = 0;
  int64_t peak_bytes = 0;
};

/// Requests of a verifier with a schedule keep their full caches in host memory; which of them draft and which verify
/// in a pass is decided by that schedule (scheduled_decoding.h), and what comes back for a verification takes room that
/// the caches of all requests leave. They share one method.
///
/// On the measured clock: a pass takes what it takes on this machine, compression and the methods' own extra passes
/// included. What a request answers does not depend on what shares its passes, bit for bit. What a method throws, in a
/// session or in the middle of a pass, costs its own request alone.
class ServingEngine final : public serving::Executor {
 public:
  ServingEngine(Transformer& model, std::vector<ServedRequest> requests, std::shared_ptr<const ModelFacts> facts);
  ~ServingEngine() override;

  void share(const std::shared_ptr<serving::Admission>& memory) override;
  [[nodiscard]] serving::RequestNeeds needs(int64_t request) const override;
  [[nodiscard]] bool may_have(int64_t bytes) override;
  serving::PassResult run(const serving::PassPlan& plan) override { return run(plan, {}); }
  /// Runs a pass with members that are no requests. Where all that could run waits for caches, and no member is given,
  /// the pass begins when the first cache is there; without one it ends, empty, after a moment.
  serving::PassResult run(const serving::PassPlan& plan, std::span<PassMember* const> beside);
  [[nodiscard]] int64_t bytes_to_end(int64_t request) const override;
  [[nodiscard]] int64_t bytes_now(int64_t request) const override;
  void drop(int64_t request) override;

  /// Takes one more request, whose number no other has, while others are under way; its verifier has no schedule.
  void add(int64_t request, ServedRequest served);
  /// Removes a request that has left, with its answer.
  void forget(int64_t request);
  /// Tokens of its answer so far.
  [[nodiscard]] std::span<const int32_t> tokens(int64_t request) const;
  /// Nothing unless the request was answered.
  [[nodiscard]] const std::optional<ServedAnswer>& answer(int64_t request) const { return known_.at(request).answer; }
  /// Bytes of a full cache of so many tokens.
  [[nodiscard]] int64_t full_bytes(int64_t tokens) const;

 private:
  struct State;
  struct Known {
    ServedRequest request;
    std::optional<ServedAnswer> answer;
  };
  [[nodiscard]] const ServedRequest& of(int64_t request) const { return known_.at(request).request; }
  [[nodiscard]] std::string refusal(const ServedRequest& request) const;
  State& state_of(int64_t request);
  State* prompt_state(int64_t request, double now);
  void begin_reuse(int64_t request, State& state);
  /// Begins the loads whose turn on the link has come.
  void begin_loads(double now);
  /// Whether nothing but a cache on its way can go on: the pass may wait for it.
  [[nodiscard]] bool only_loads(std::span<const int64_t> waiting) const;
  /// The requests of the pass at `now`: those that the plan lists, without those that wait for their schedule, or, as
  /// the result's `waiting`, for their cache.
  std::vector<int64_t> requests_of(const serving::PassPlan& plan, double now, serving::PassResult& result);
  /// Waits until a cache is there that one of these requests waits for, and returns its time on the run's clock; no
  /// longer than a moment after `now`, for others may arrive.
  [[nodiscard]] double first_arrival(std::span<const int64_t> waiting, double now);
  /// Starts the session of a request whose prompt was read.
  void start(int64_t request, State& state);
  /// Requests past their prompt join the schedule as its memory takes them.
  void join_schedule();
  /// Why a request that is past its prompt cannot join it.
  [[nodiscard]] std::string no_room(int64_t request) const;
  /// Bytes that its full cache may come to take.
  [[nodiscard]] int64_t full_bytes_to_end(int64_t request) const;
  void leave_schedule(int64_t request);
  serving::RequestProgress settle(int64_t request);

  Transformer* model_;
  std::map<int64_t, Known> known_;
  std::shared_ptr<const ModelFacts> facts_;
  std::map<int64_t, std::unique_ptr<State>> states_;  // of requests under way
  std::optional<ScheduledDecoding> schedule_;         // of the requests whose verifier has one
  std::deque<int64_t> joining_;                       // requests that the schedule has no memory for yet
};

}  // namespace kvarena
