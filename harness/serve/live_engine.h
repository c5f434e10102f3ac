#pragma once
// The serving loop under requests that come while it runs. One thread owns the model, the sessions and the batch.

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "harness/engine/serving/serve.h"
#include "harness/engine/serving/serving_engine.h"
#include "harness/serve/answer_stream.h"
#include "harness/serve/server_metrics.h"

namespace kvarena::serve {

struct LiveRequest {
  std::string model;  // as the client names it, for metrics
  ServedRequest served;
  std::optional<int64_t> logprobs;  // scores of new tokens, with so many likeliest
  bool scores_prompt = false;       // and of the prompt's
};

struct LiveSettings {
  serving::BatchSettings batch;
  int64_t most_waiting = 256;  // requests beside those that may run
  double timeout_s = 600;      // of a request, from arrival to its last token
};

class LiveEngine {
 public:
  /// The model and the metrics must outlive it.
  LiveEngine(Transformer& model, std::shared_ptr<const ModelFacts> facts, const LiveSettings& settings,
             ServerMetrics& metrics);
  /// Ends requests that are under way.
  ~LiveEngine();

  /// Takes a request. Throws ApiError: 429 where too many are inside, 503 once it stops.
  [[nodiscard]] std::shared_ptr<AnswerStream> submit(LiveRequest request);
  /// Takes no more requests, lets those inside end for so long, cancels the rest, and returns when none is left.
  void stop(double grace_s);
  [[nodiscard]] bool stopping() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::string model;
    std::shared_ptr<AnswerStream> stream;
    std::shared_ptr<PendingScores> scores;  // null unless asked for
    size_t sent = 0;                        // tokens
    int64_t prompt_tokens = 0;
    int64_t forced = 0;  // of these, tokens that come as if they were the answer's
    bool closing = false;
  };
  struct Arrival {
    int64_t number = 0;
    LiveRequest request;
    std::shared_ptr<AnswerStream> stream;
    double at_s = 0;
  };

  void work();
  /// Waits for something to do; false once it stops and nothing is inside.
  bool await();
  void take(Arrival arrival);
  void drop_cancelled();
  void close(const std::string& reason, bool closing);
  void run_pass();
  void deliver(int64_t number, Entry& entry);
  void left(int64_t number, const serving::Timeline& timeline);
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  LiveSettings settings_;
  ServerMetrics& metrics_;
  const Clock::time_point began_ = Clock::now();
  ServingEngine engine_;
  serving::ServingLoop loop_;
  std::map<int64_t, Entry> entries_;  // of the engine's thread, as the two above

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Arrival> arrivals_;
  int64_t inside_ = 0;  // submitted and not left
  int64_t next_ = 0;
  std::optional<Clock::time_point> deadline_;  // once it stops
  std::thread thread_;                         // last: it uses the others
};

}  // namespace kvarena::serve
