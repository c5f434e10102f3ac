#pragma once
// The engine's passes over stored contexts, with the work of the store and the profiler beside them.

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "harness/engine/serving/serving_engine.h"
#include "harness/engine/stored/context_library.h"
#include "harness/engine/stored/profiler.h"
#include "harness/evaluate/stored_point.h"

namespace kvarena::evaluate {

/// The way in which the cache of one request came.
struct Begun {
  std::map<Tier, double> tiers;  // shares of its bytes by where they lay; empty when it was computed anew
  double profiled = 1;           // quality of the form that it came in
  double load_s = 0;
  double restore_s = 0;
};

/// One context's profiling during the run, on its clock.
struct Profiling {
  size_t context = 0;
  double began_s = 0;
  double ended_s = 0;
};

/// Caches come beside passes, on threads of their own. A context moves or is compressed beside the passes behind the
/// one in which its request began; requests that come meanwhile wait until a file is written, and for no form that is
/// made nor link that bytes move over. Profiling anew is in passes that have room beside their requests, and in the
/// time without any. Everything given must outlive it.
class StoredExecutor final : public serving::Executor {
 public:
  StoredExecutor(Transformer& model, const StoredContextsTask& task, const StoredPoint& point,
                 stored::ContextLibrary& library, const storage::Policy& policy);
  ~StoredExecutor() override;
  StoredExecutor(const StoredExecutor&) = delete;
  StoredExecutor& operator=(const StoredExecutor&) = delete;

  [[nodiscard]] serving::RequestNeeds needs(int64_t request) const override { return engine_.needs(request); }
  [[nodiscard]] int64_t bytes_to_end(int64_t request) const override { return engine_.bytes_to_end(request); }
  [[nodiscard]] int64_t bytes_now(int64_t request) const override { return engine_.bytes_now(request); }
  void drop(int64_t request) override { engine_.drop(request); }
  serving::PassResult run(const serving::PassPlan& plan) override;
  double idle(const serving::PassPlan& empty, double seconds) override;
  /// Waits until all contexts lie where they should. Throws what the store threw on its own threads.
  void finish_moves();

  [[nodiscard]] const ServingEngine& engine() const { return engine_; }
  [[nodiscard]] const std::vector<Begun>& begun() const { return begun_; }
  /// Contexts that were profiled anew, in the order in which that ended.
  [[nodiscard]] const std::vector<Profiling>& profilings() const { return profilings_; }

 private:
  [[nodiscard]] std::vector<ServedRequest> requests();
  [[nodiscard]] std::future<BroughtPrompt> begin(size_t request);
  /// Does `work` on the library on a thread of its own, when all that came before it is done.
  void beside_passes(std::function<void()> work);
  /// Compares an answer with its form's profile; a context that has drifted waits for being profiled anew.
  void watch(size_t request);
  /// Members of profiling for a pass with such room.
  [[nodiscard]] std::vector<PassMember*> profiling_members(const serving::PassPlan& plan);
  /// Takes what they brought, at `now`; a context whose profile is whole is placed by it.
  void take_profiling(double now);

  Transformer* model_;
  const StoredContextsTask* task_;
  const StoredPoint* point_;
  stored::ContextLibrary* library_;
  const Method full_;
  std::optional<double> threshold_;
  stored::DriftWatch drift_;
  std::vector<Begun> begun_;                              // by request
  std::vector<std::atomic<int64_t>> coming_;              // by request, bytes at most until its prompt goes on
  std::deque<size_t> loaded_;                             // contexts used in the pass under way
  std::vector<std::vector<const Request*>> recent_;       // by context, the newest last
  int64_t uses_;                                          // clock of the store: contexts that came, then their uses
  std::deque<size_t> drifted_;                            // contexts to profile anew, the one under way first
  std::future<std::shared_ptr<const Prefill>> original_;  // of drifted_.front(), until it is there
  std::unique_ptr<stored::ProfileRun> profiling_;         // of drifted_.front()
  double profiling_since_s_ = 0;
  std::vector<Profiling> profilings_;
  std::mutex library_lock_;
  std::future<void> moving_;  // the newest of beside_passes(), which waits for the others
  ServingEngine engine_;
};

}  // namespace kvarena::evaluate
