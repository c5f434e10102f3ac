#pragma once
// Passes on a machine that is described: they take what their bytes and operations take.

#include <cstdint>
#include <map>
#include <vector>

#include "harness/engine/serving/serve.h"

namespace kvarena::serving {

struct ServingMachine {
  double memory_bandwidth = 0;  // bytes/s
  double flops = 0;             // operations/s
  double pass_seconds = 0;      // of every pass, whatever is in it
};

struct ServedModel {
  double weight_bytes = 0;
  double flops_per_token = 0;  // of the matrices: twice their elements
  /// Of attention, for each pair of a new token and an entry that it attends to: four per query head and channel.
  double flops_per_entry = 0;
};

struct ModelledRequest {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 1;
  double bytes_per_token = 0;  // of the full cache
  double kept = 1;             // share of the prompt's bytes that the method leaves
};

/// A pass reads the weights once, each step's cache, and each chunk's prompt so far; it computes every token. It takes
/// the longer of both. A step gives one token.
class ModelledExecutor final : public Executor {
 public:
  ModelledExecutor(const ServingMachine& machine, const ServedModel& model, std::vector<ModelledRequest> requests);

  [[nodiscard]] RequestNeeds needs(int64_t request) const override;
  PassResult run(const PassPlan& plan) override;
  [[nodiscard]] int64_t bytes_to_end(int64_t request) const override;
  [[nodiscard]] int64_t bytes_now(int64_t request) const override;
  void drop(int64_t request) override { state_.erase(request); }

 private:
  struct State {
    int64_t prefilled = 0;
    int64_t emitted = 0;
  };
  [[nodiscard]] const ModelledRequest& of(int64_t request) const { return requests_[static_cast<size_t>(request)]; }
  [[nodiscard]] double cache_bytes(const ModelledRequest& request, const State& state) const;

  ServingMachine machine_;
  ServedModel model_;
  std::vector<ModelledRequest> requests_;
  std::map<int64_t, State> state_;  // of requests under way
};

}  // namespace kvarena::serving
