#include "harness/engine/session/prefill.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "harness/cache/sliding_window.h"
#include "harness/core/error.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/future.h"
#include "harness/engine/session/observe.h"
#include "harness/engine/session/reconstruction.h"
#include "harness/engine/session/restoration.h"

namespace kvarena {

Prefill unread_prompt(Transformer& model, std::span<const int32_t> tokens, std::shared_ptr<const ModelFacts> facts) {
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t window = model.config().max_position;
  if (n == 0) fail({.place = "prompt", .found = "no tokens", .expected = "at least one"});
  if (n > window) {
    fail({.place = "prompt",
          .found = fmt::format("{} tokens", n),
          .expected = fmt::format("at most {}, the model's window", window),
          .action = "set \"max_length\" in the workload to cut long prompts in the middle"});
  }
  Prefill result{.tokens = {tokens.begin(), tokens.end()}, .cache = model.make_cache(), .model = std::move(facts)};
  if (result.model == nullptr) result.model = model_facts(model);
  result.cache.prompt_length = n;
  return result;
}

PromptRun::PromptRun(Transformer& model, std::span<const int32_t> tokens, const Needs& needs,
                     std::shared_ptr<const ModelFacts> facts)
    : model_(&model), needs_(needs), result_(unread_prompt(model, tokens, std::move(facts))) {
  observer_ = std::make_unique<PromptObserver>(needs, result_.cache.prompt_length, model.config().cached_layers(),
                                               model.config().hidden_size, *result_.model);
}

PromptRun::PromptRun(Transformer& model, std::span<const int32_t> tokens, std::shared_ptr<const ModelFacts> facts,
                     KvCache begun)
    : PromptRun(model, tokens, Needs{}, std::move(facts)) {
  const auto n = static_cast<int64_t>(tokens.size());
  KVARENA_ASSERT(begun.length < n, fmt::format("a cache of {} tokens for a prompt of {}", begun.length, n));
  if (const int64_t window = result_.model->rotation_window; window > 0 && n > window) {
    fail({.place = "prompt",
          .found = fmt::format("{} tokens under a rope scaling that turns keys by the prompt's length", n),
          .expected = fmt::format("at most {}, the original window, where it begins with a stored cache", window),
          .action = "shorten it, or take a model of another scaling"});
  }
  done_ = begun.length;
  result_.cache = std::move(begun);
  result_.cache.prompt_length = n;
}

PromptRun::~PromptRun() = default;

int64_t PromptRun::remaining() const { return static_cast<int64_t>(result_.tokens.size()) - done_; }

SequencePass PromptRun::next_pass() {
  if (!needs_.sliding) release_unseen(result_.cache);
  const int64_t count = std::min(chunk_, remaining());
  const auto tokens = std::span<const int32_t>(result_.tokens).subspan(done_, count);
  done_ += count;
  const LogitsRows wanted = remaining() == 0 ? LogitsRows::last : LogitsRows::none;
  return {.tokens = tokens,
          .cache = &result_.cache,
          .hooks = observer_.get(),
          .logits = on_logits_ ? LogitsRows::all : wanted};
}

void PromptRun::consume(std::span<const float> logits) {
  if (logits.empty()) return;
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  if (on_logits_) {
    for (size_t at = 0; at < logits.size(); at += vocab) on_logits_(told_++, logits.subspan(at, vocab));
  }
  const std::span<const float> newest = logits.last(vocab);
  result_.logits.assign(newest.begin(), newest.end());
}

void PromptRun::failed(const std::string& reason) { throw UserError(reason); }

Prefill PromptRun::finish(int64_t chunk) {
  KVARENA_ASSERT(remaining() == 0, fmt::format("{} tokens remain", remaining()));
  const auto start = std::chrono::steady_clock::now();
  result_.observations = observer_->take();
  if (!needs_.sliding) forget_windows();
  if (needs_.output_projection) observe_output_projection(*model_, result_);
  for (const Reconstruction& what : needs_.reconstructions) observe_reconstruction(*model_, result_, what, chunk);
  for (const std::string& adapter : needs_.restorations) observe_restoration(*model_, result_, adapter);
  if (needs_.future > 0) observe_future(*model_, result_, {}, needs_.future);
  const double after = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result_.observe_seconds = observer_->seconds() + after;
  return std::move(result_);
}

/// Nobody looked at layers with a window, and nobody will at what no later token sees of them.
void PromptRun::forget_windows() {
  release_unseen(result_.cache);
  for (size_t layer = 0; layer < result_.observations.size(); ++layer) {
    LayerObservations& seen = result_.observations[layer];
    if (model_->layer_shape(static_cast<int64_t>(layer)).window > 0) seen = {.residual = std::move(seen.residual)};
  }
}

Prefill prefill(Transformer& model, std::span<const int32_t> tokens, const Needs& needs, int64_t chunk,
                std::shared_ptr<const ModelFacts> facts) {
  const auto start = std::chrono::steady_clock::now();
  PromptRun run(model, tokens, needs, std::move(facts));
  run.set_chunk(chunk);
  while (run.remaining() > 0) {
    const SequencePass pass = run.next_pass();
    run.consume(model.forward({&pass, 1}));
  }
  Prefill result = run.finish(chunk);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace kvarena
