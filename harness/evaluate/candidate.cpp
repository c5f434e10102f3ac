#include "harness/evaluate/candidate.h"

#include <algorithm>
#include <array>

#include "harness/cache/sliding_window.h"
#include "harness/core/failure.h"
#include "harness/core/seconds_since.h"
#include "harness/engine/session/compressed_cache.h"

namespace kvarena::evaluate {
namespace {

/// Logits that a pass computes of an answer that is given take so many bytes at most.
constexpr int64_t kLogitsBytes = 2 << 20;

void start(Candidate& candidate, Transformer& model, const Prefill& prompt) {
  const Request& request = *candidate.request;
  SessionOptions options = session_options(request);
  options.forced = candidate.forced;
  const int64_t row_bytes = model.config().vocab_size * static_cast<int64_t>(sizeof(float));
  options.forced_piece = std::max<int64_t>(1, kLogitsBytes / row_bytes);
  options.on_logits = candidate.on_logits;
  options.meter = candidate.meter.get();
  options.departs_from = candidate.departs_from;
  if (candidate.session && candidate.session->answer_again(options)) return;
  candidate.session.reset();  // its passes read the meter
  const bool metered = request.selections || (request.retrievals && candidate.retrieves);
  candidate.meter = metered ? std::make_unique<SelectionMeter>(prompt.cache) : nullptr;
  options.meter = candidate.meter.get();
  candidate.session = start_session(model, prompt, *candidate.method, std::move(options));
  // It answers again from where it departed, so that its cache is its own from here on.
  const bool goes_back =
      candidate.departs_from != nullptr && !candidate.retrieves && candidate.method->cannot_draft().empty();
  if (candidate.last && goes_back && prompt.compressed) prompt.compressed->by_method.erase(candidate.method);
}

}  // namespace

Prefill read_prompt(Transformer& model, const Request& request, const Needs& needs, const PrefillFolder* prefills) {
  Prefill prompt = prefills == nullptr ? prefill(model, request.prompt, needs, kPrefillChunk, request.facts)
                                       : prefills->read(model, request.prompt, needs, request.facts);
  prompt.layout = request.layout;
  prompt.memory = reuse_memory(request);
  return prompt;
}

int64_t full_bytes(const Prefill& prompt) {
  KvCache seen = prompt.cache.clone();
  release_unseen(seen);
  return seen.bytes();
}

void run_candidates(Transformer& model, const Prefill& prompt, std::vector<Candidate*> candidates,
                    const Prefill* neighbour) {
  for (Candidate* candidate : candidates) {
    candidate->failure = failure_of([&] { start(*candidate, model, prompt); });
  }
  std::erase_if(candidates, [](const Candidate* candidate) { return !candidate->failure.empty(); });
  const auto begin = std::chrono::steady_clock::now();
  try {
    std::vector<Session*> sessions;
    const FullKv full;
    std::unique_ptr<Session> beside;
    if (neighbour != nullptr && !candidates.empty()) {
      const int64_t tokens = candidates.front()->request->stop.max_new_tokens;
      beside = start_session(model, *neighbour, full, {.stop = {.max_new_tokens = tokens}});
      sessions.push_back(beside.get());
    }
    for (Candidate* candidate : candidates) sessions.push_back(candidate->session.get());
    run_together(model, sessions);
    for (Candidate* candidate : candidates) candidate->failure = candidate->session->failure;
  } catch (...) {
    for (Candidate* candidate : candidates) {
      candidate->session.reset();  // which may have thrown in a pass
      candidate->failure = failure_of([&] {
        start(*candidate, model, prompt);
        run_together(model, std::array{candidate->session.get()});
      });
      if (candidate->failure.empty()) candidate->failure = candidate->session->failure;
    }
  }
  const double seconds = seconds_since(begin);
  for (Candidate* candidate : candidates) candidate->seconds += seconds / static_cast<double>(candidates.size());
}

}  // namespace kvarena::evaluate
