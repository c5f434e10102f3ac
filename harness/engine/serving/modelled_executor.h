#pragma once
// Passes on a machine that is described: they take what the roofline says of their bytes and operations.

#include <cstdint>
#include <map>
#include <vector>

#include "harness/cost_model/roofline.h"
#include "harness/engine/serving/serve.h"

namespace kvarena::serving {

struct ServedModel {
  double weight_bytes = 0;
  double flops_per_token = 0;  // of the matrices: twice their elements
  /// Operations of attention for a pair of a new token and an entry that it attends to: four per query head and
  /// channel.
  double flops_per_entry = 0;
  double kernels = 0;  // that a pass launches
};

struct ModelledRequest {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 1;
  double bytes_per_token = 0;           // of the full cache
  cost_model::CacheScheme scheme = {};  // past the prompt; `keep` is the share of the prompt's entries that stays
  double answer_kept = 1;               // share of the answer's entries that stays
};

/// A pass reads the weights once, what each step attends to and fetches (cost_model/roofline.h), and each chunk's
/// prompt so far; it computes every token. A step gives one token.
class ModelledExecutor final : public Executor {
 public:
  ModelledExecutor(cost_model::Hardware machine, const ServedModel& model, std::vector<ModelledRequest> requests);

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

  cost_model::Hardware machine_;
  ServedModel model_;
  std::vector<ModelledRequest> requests_;
  std::map<int64_t, State> state_;  // of requests under way
};

}  // namespace kvarena::serving
