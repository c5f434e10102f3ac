#include "harness/engine/session/restoration.h"

#include <fmt/format.h>

#include <mutex>
#include <numeric>

#include "harness/core/error.h"
#include "harness/model/pass_checks.h"
#include "harness/model/shared_model.h"

namespace kvarena {
namespace {

/// The adapter's tokens.
std::vector<int32_t> added_tokens(const ModelConfig& model, const ModelConfig& adapted, const std::string& adapter) {
  const int64_t count = adapted.vocab_size - model.vocab_size;
  const bool alike = adapted.layers == model.layers && adapted.hidden_size == model.hidden_size &&
                     adapted.kv_heads == model.kv_heads && adapted.head_dim == model.head_dim;
  if (!alike || count <= 0) {
    fail({.place = adapter,
          .found = alike ? "an adapter without restore_embeddings.safetensors"
                         : fmt::format("an adapter of {}, which is not of this model's shape", adapted.name),
          .expected = fmt::format("a restoration adapter of {}", model.name)});
  }
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(model.vocab_size));
  return tokens;
}

}  // namespace

void observe_restoration(Transformer& model, Prefill& prompt, const std::string& adapter) {
  require_entries(model.config(), "restoration of the prompt", "tokens behind the cache");
  const std::shared_ptr<SharedModel> adapted = model.helper(adapter, prompt.model->file);
  const std::vector<int32_t> tokens = added_tokens(model.config(), adapted->transformer.config(), adapter);
  KvCache cache = prompt.cache.clone();
  const SequencePass pass{.tokens = tokens, .cache = &cache, .logits = LogitsRows::none};
  {
    const std::lock_guard turn(adapted->turn);
    (void)adapted->transformer.forward({&pass, 1});
  }
  const auto count = std::ssize(tokens);
  for (size_t layer = 0; layer < prompt.observations.size(); ++layer) {
    const EntrySegment& tail = cache.layers[layer].tail();
    const int64_t d = tail.shape().head_dim, row = tail.shape().kv_heads * d;
    RestoredEntries restored{.adapter = adapter,
                             .tokens = count,
                             .keys = std::vector<float>(static_cast<size_t>(count * row)),
                             .values = std::vector<float>(static_cast<size_t>(count * row))};
    for (int64_t head = 0; head < tail.shape().kv_heads; ++head) {
      tail.read_some(head, tail.entries(head) - count, count, &restored.keys[head * d], &restored.values[head * d],
                     row);
    }
    prompt.observations[layer].restorations.push_back(std::move(restored));
  }
}

}  // namespace kvarena
