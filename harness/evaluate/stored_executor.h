#pragma once
// The engine's passes over stored contexts, with the work of the store and the profiler between them.

#include <deque>
#include <optional>
#include <vector>

#include "harness/engine/serving/serving_engine.h"
#include "harness/engine/stored/context_library.h"
#include "harness/engine/stored/profiler.h"
#include "harness/evaluate/stored_point.h"

namespace kvarena::evaluate {

/// The way in which the cache of one request came.
struct Begun {
  std::optional<Tier> tier;
  double profiled = 1;  // quality of the form that it came in
  double load_s = 0;
  double restore_s = 0;
};

/// A context moves or is compressed after the pass in which its request began, outside of the clock; profiling anew
/// takes its time on it. Everything given must outlive it.
class StoredExecutor final : public serving::Executor {
 public:
  StoredExecutor(Transformer& model, const StoredContextsTask& task, const StoredPoint& point,
                 stored::ContextLibrary& library, const storage::Policy& policy);

  [[nodiscard]] serving::RequestNeeds needs(int64_t request) const override { return engine_.needs(request); }
  [[nodiscard]] int64_t bytes_to_end(int64_t request) const override { return engine_.bytes_to_end(request); }
  [[nodiscard]] int64_t bytes_now(int64_t request) const override { return engine_.bytes_now(request); }
  void drop(int64_t request) override { engine_.drop(request); }
  serving::PassResult run(const serving::PassPlan& plan) override;

  [[nodiscard]] const ServingEngine& engine() const { return engine_; }
  [[nodiscard]] const std::vector<Begun>& begun() const { return begun_; }
  /// Requests after whose answer their context was profiled anew, in that order.
  [[nodiscard]] const std::vector<size_t>& reprofiled() const { return reprofiled_; }

 private:
  [[nodiscard]] std::vector<ServedRequest> requests();
  [[nodiscard]] KvCache begin(size_t request);
  /// Compares an answer with its form's profile; returns the seconds of profiling anew when the context has drifted.
  [[nodiscard]] double watch(size_t request);

  Transformer* model_;
  const StoredContextsTask* task_;
  const StoredPoint* point_;
  stored::ContextLibrary* library_;
  const Method full_;
  std::optional<double> threshold_;
  stored::DriftWatch drift_;
  std::vector<Begun> begun_;                         // by request
  std::deque<size_t> loaded_;                        // contexts used in the pass under way
  std::vector<std::vector<const Request*>> recent_;  // by context, the newest last
  int64_t uses_;                                     // clock of the store: contexts that came, then their uses
  std::vector<size_t> reprofiled_;
  ServingEngine engine_;
};

}  // namespace kvarena::evaluate
