#include "harness/engine/serving/modelled_executor.h"

#include <cmath>

namespace kvarena::serving {
namespace {

/// A request's cache past its prompt, `answer` tokens later.
cost_model::RequestBytes cache_after(const ModelledRequest& request, int64_t answer) {
  const auto prompt = static_cast<double>(request.prompt_tokens), more = static_cast<double>(answer);
  cost_model::CacheScheme scheme = request.scheme;
  scheme.keep = (scheme.keep * prompt + request.answer_kept * more) / (prompt + more);
  return cost_model::request_bytes(request.bytes_per_token, scheme, prompt + more);
}

}  // namespace

ModelledExecutor::ModelledExecutor(cost_model::Hardware machine, const ServedModel& model,
                                   std::vector<ModelledRequest> requests)
    : machine_(std::move(machine)), model_(model), requests_(std::move(requests)) {}

RequestNeeds ModelledExecutor::needs(int64_t request) const {
  const ModelledRequest& r = of(request);
  const auto tokens = static_cast<double>(r.prompt_tokens + r.output_tokens);
  return {.prompt_tokens = r.prompt_tokens, .bytes = static_cast<int64_t>(std::ceil(r.bytes_per_token * tokens))};
}

int64_t ModelledExecutor::bytes_to_end(int64_t request) const {
  return static_cast<int64_t>(std::ceil(cache_after(of(request), of(request).output_tokens).resident));
}

int64_t ModelledExecutor::bytes_now(int64_t request) const {
  const auto it = state_.find(request);
  if (it == state_.end()) return 0;
  const auto& [prefilled, emitted] = it->second;
  return static_cast<int64_t>(emitted > 0 ? cache_after(of(request), emitted).resident
                                          : of(request).bytes_per_token * static_cast<double>(prefilled));
}

PassResult ModelledExecutor::run(const PassPlan& plan) {
  cost_model::StepEstimate pass{.weight_bytes = model_.weight_bytes, .kernels = model_.kernels};
  PassResult result;
  const auto emit = [&](int64_t request) {
    State& state = state_[request];
    ++state.emitted;
    const bool finished = state.emitted >= of(request).output_tokens;
    result.progress.push_back({.request = request, .tokens = 1, .finished = finished});
    if (finished) state_.erase(request);
  };
  for (const int64_t request : plan.steps) {
    const cost_model::RequestBytes cache = cache_after(of(request), state_.at(request).emitted);
    pass.cache_bytes += cache.read;
    pass.link_bytes += cache.link;
    pass.flops += model_.flops_per_token + model_.flops_per_entry * cache.attended;
    emit(request);
  }
  for (const PassPlan::Chunk& chunk : plan.chunks) {
    State& state = state_[chunk.request];
    const auto before = static_cast<double>(state.prefilled), tokens = static_cast<double>(chunk.tokens);
    pass.cache_bytes += of(chunk.request).bytes_per_token * (before + tokens);
    pass.flops += tokens * (model_.flops_per_token + model_.flops_per_entry * (before + (tokens + 1) / 2));
    state.prefilled += chunk.tokens;
    if (state.prefilled == of(chunk.request).prompt_tokens) emit(chunk.request);
  }
  result.seconds = cost_model::timed(machine_, pass).seconds;
  return result;
}

}  // namespace kvarena::serving
