#include "harness/engine/prefill.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "harness/core/error.h"
#include "harness/engine/future.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/observe.h"
#include "harness/engine/reconstruction.h"

namespace kvarena {

Prefill prefill(Transformer& model, std::span<const int32_t> tokens, const Needs& needs, int64_t chunk,
                std::shared_ptr<const ModelFacts> facts) {
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t window = model.config().max_position;
  if (n == 0) fail({.place = "prompt", .found = "no tokens", .expected = "at least one"});
  if (n > window) {
    fail({.place = "prompt",
          .found = fmt::format("{} tokens", n),
          .expected = fmt::format("at most {}, the model's window", window),
          .action = "set \"max_length\" in the workload to cut long prompts in the middle"});
  }

  const auto start = std::chrono::steady_clock::now();
  Prefill result{.tokens = {tokens.begin(), tokens.end()}, .cache = model.make_cache(), .model = std::move(facts)};
  if (result.model == nullptr) result.model = model_facts(model);
  result.cache.prompt_length = n;
  PromptObserver observer(needs, n, model.config().layers, model.config().hidden_size, result.model->rotation);
  for (int64_t done = 0; done < n; done += chunk) {
    const int64_t count = std::min(chunk, n - done);
    const SequencePass pass{.tokens = tokens.subspan(done, count),
                            .cache = &result.cache,
                            .hooks = &observer,
                            .logits = done + count == n ? LogitsRows::last : LogitsRows::none};
    const std::span<const float> logits = model.forward({&pass, 1});
    result.logits.assign(logits.begin(), logits.end());
  }
  result.observations = observer.take();
  for (size_t layer = 0; layer < result.observations.size() && needs.output_projection; ++layer) {
    result.observations[layer].output_projection = [&model, layer] {
      return model.output_projection(static_cast<int64_t>(layer));
    };
  }
  for (const Reconstruction& what : needs.reconstructions) observe_reconstruction(model, result, what, chunk);
  if (needs.future > 0) observe_future(model, result, needs.future);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace kvarena
