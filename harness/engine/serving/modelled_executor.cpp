#include "harness/engine/serving/modelled_executor.h"

#include <algorithm>
#include <cmath>

namespace kvarena::serving {

ModelledExecutor::ModelledExecutor(const ServingMachine& machine, const ServedModel& model,
                                   std::vector<ModelledRequest> requests)
    : machine_(machine), model_(model), requests_(std::move(requests)) {}

RequestNeeds ModelledExecutor::needs(int64_t request) const {
  const ModelledRequest& r = of(request);
  const auto tokens = static_cast<double>(r.prompt_tokens + r.output_tokens);
  return {.prompt_tokens = r.prompt_tokens, .bytes = static_cast<int64_t>(std::ceil(r.bytes_per_token * tokens))};
}

double ModelledExecutor::cache_bytes(const ModelledRequest& request, const State& state) const {
  const double kept = state.emitted > 0 ? request.kept : 1;
  return request.bytes_per_token * (kept * static_cast<double>(state.prefilled) + static_cast<double>(state.emitted));
}

int64_t ModelledExecutor::bytes_to_end(int64_t request) const {
  const ModelledRequest& r = of(request);
  const double tokens = r.kept * static_cast<double>(r.prompt_tokens) + static_cast<double>(r.output_tokens);
  return static_cast<int64_t>(std::ceil(r.bytes_per_token * tokens));
}

int64_t ModelledExecutor::bytes_now(int64_t request) const {
  const auto it = state_.find(request);
  return it == state_.end() ? 0 : static_cast<int64_t>(cache_bytes(of(request), it->second));
}

PassResult ModelledExecutor::run(const PassPlan& plan) {
  double bytes = model_.weight_bytes;
  double operations = 0;
  PassResult result;
  const auto emit = [&](int64_t request) {
    State& state = state_[request];
    ++state.emitted;
    const bool finished = state.emitted >= of(request).output_tokens;
    result.progress.push_back({.request = request, .tokens = 1, .finished = finished});
    if (finished) state_.erase(request);
  };
  for (const int64_t request : plan.steps) {
    const double cache = cache_bytes(of(request), state_.at(request));
    bytes += cache;
    operations += model_.flops_per_token + model_.flops_per_entry * cache / of(request).bytes_per_token;
    emit(request);
  }
  for (const PassPlan::Chunk& chunk : plan.chunks) {
    State& state = state_[chunk.request];
    const auto before = static_cast<double>(state.prefilled), tokens = static_cast<double>(chunk.tokens);
    bytes += of(chunk.request).bytes_per_token * (before + tokens);
    operations += tokens * (model_.flops_per_token + model_.flops_per_entry * (before + (tokens + 1) / 2));
    state.prefilled += chunk.tokens;
    if (state.prefilled == of(chunk.request).prompt_tokens) emit(chunk.request);
  }
  result.seconds = machine_.pass_seconds + std::max(bytes / machine_.memory_bandwidth, operations / machine_.flops);
  return result;
}

}  // namespace kvarena::serving
