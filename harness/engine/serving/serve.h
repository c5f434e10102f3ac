#pragma once
// The serving loop: arrivals, admission, passes, answers.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/engine/serving/batch_schedule.h"
#include "harness/engine/serving/load.h"

namespace kvarena::serving {

/// Facts about a request that the loop must know when it arrives.
struct RequestNeeds {
  int64_t prompt_tokens = 0;
  int64_t bytes = 0;                                            // at most, until its first token
  std::string refusal;                                          // not empty: why it cannot be served at all
  double patience_s = std::numeric_limits<double>::infinity();  // the client leaves that long after its arrival
};

/// Progress of one request in a pass.
struct RequestProgress {
  int64_t request = 0;
  int64_t tokens = 0;     // output tokens that came
  bool finished = false;  // the answer is complete
  bool begun = false;     // it is past its prompt, before its first token
  /// Tokens of its prompt that are left, where they are not what RequestNeeds said less what the plans gave it.
  std::optional<int64_t> prompt_left = {};
  std::string failure;  // not empty: the request failed and is gone
};

struct PassResult {
  double seconds = 0;
  std::vector<RequestProgress> progress;  // of requests to which something happened
  std::vector<int64_t> waiting;           // of the plan's chunks, requests whose prompt cannot go on yet
  int64_t in_turn_bytes = 0;  // that they held in the pass beside bytes_now(), in room that they use in turn
};

/// Carries out passes and keeps requests' states between them.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Tells it the room that requests are promised, which it may promise too; before the first pass.
  virtual void share(const std::shared_ptr<Admission>& /*memory*/) {}
  [[nodiscard]] virtual RequestNeeds needs(int64_t request) const = 0;
  /// Whether so many bytes of that room are free now: what requests hold in turn leaves it for them. Asked before each
  /// pass until they are.
  [[nodiscard]] virtual bool may_have(int64_t /*bytes*/) { return true; }
  /// Runs one pass. A prompt that ends in it gives its first token. A request whose own code fails is reported and
  /// dropped; the others are untouched.
  virtual PassResult run(const PassPlan& plan) = 0;
  /// While no request is inside: works on what waits for such times until `seconds` are over, at most a pass longer.
  /// Returns the seconds that it took, 0 when nothing waits.
  virtual double idle(const PassPlan& /*empty*/, double /*seconds*/) { return 0; }
  /// Bytes that the request, past its prompt, may come to hold until its end.
  [[nodiscard]] virtual int64_t bytes_to_end(int64_t request) const = 0;
  /// Bytes that it holds now.
  [[nodiscard]] virtual int64_t bytes_now(int64_t request) const = 0;
  /// Frees what the request holds. Not called for what run() reported as finished or failed.
  virtual void drop(int64_t request) = 0;
};

enum class Outcome { answered, refused, failed, cancelled };
[[nodiscard]] const char* to_string(Outcome outcome);

/// One request's life, in seconds of the run's clock.
struct Timeline {
  double arrival_s = 0;
  double admitted_s = 0;        // answered requests, and others that came so far
  std::vector<double> token_s;  // when each output token came
  double left_s = 0;
  Outcome outcome = Outcome::answered;
  std::string reason;  // of all but answered
};

/// When the first of the requests came, 0 of none.
[[nodiscard]] double first_arrival_s(std::span<const Timeline> requests);

struct ServingRun {
  std::vector<Timeline> requests;  // by number
  double seconds = 0;              // from the first arrival to the last departure
  int64_t passes = 0;
  double busy_seconds = 0;  // in passes
  int64_t peak_reserved_bytes = 0;
  int64_t peak_held_bytes = 0;  // after any pass, with what was held in turn in it
  int64_t overrun_bytes = 0;    // most that a request ever held above its reservation
  int64_t peak_running = 0;
  int64_t peak_waiting = 0;
};

/// The loop, one pass at a time: requests arrive, are cancelled and leave between passes.
class ServingLoop {
 public:
  using OnLeft = std::function<void(int64_t request, Timeline timeline)>;
  /// `on_left` is told of each request that leaves, exactly once. The executor must outlive the loop.
  ServingLoop(Executor& executor, const BatchSettings& settings, OnLeft on_left);

  /// A request arrives; it leaves at once where it cannot be served.
  void arrive(int64_t request, double at_s);
  /// Ends a request that is inside.
  void cancel(int64_t request, const std::string& reason);
  /// Lets go who lost patience, admits what fits and runs a pass. Returns what happened in it to which request, nothing
  /// where there was nothing to run.
  std::optional<std::vector<RequestProgress>> pass();
  /// Moves the clock on, unless it is there already; the executor may use the time.
  void wait_until(double at_s);

  [[nodiscard]] double now() const { return now_; }
  /// Requests that arrived and have not left, those of them that wait to be admitted, and bytes that others reserve.
  [[nodiscard]] int64_t inside() const { return static_cast<int64_t>(inside_.size()); }
  [[nodiscard]] int64_t waiting() const { return schedule_.waiting(); }
  [[nodiscard]] int64_t reserved_bytes() const { return schedule_.reserved_bytes(); }
  /// Counts so far, without requests.
  [[nodiscard]] ServingRun totals() const;

 private:
  struct Inside {
    Timeline timeline;
    double patience_s = 0;
    std::optional<int64_t> reserved;  // bytes, once admitted
  };
  void lose_patience();
  void admit();
  void leave(int64_t request, Outcome outcome, std::string reason);
  void take(const RequestProgress& progress);
  void account(int64_t in_turn_bytes);

  Executor& executor_;
  BatchSchedule schedule_;
  OnLeft on_left_;
  ServingRun totals_;
  double now_ = 0;
  std::map<int64_t, Inside> inside_;
};

/// Serves every request of the load to its end. Each comes out exactly once.
[[nodiscard]] ServingRun serve(Load load, Executor& executor, const BatchSettings& settings);

}  // namespace kvarena::serving
