#pragma once
// A method's effect on a prompt, layer by layer and step by step, as data.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/engine/session/prompt_meter.h"
#include "harness/method/method.h"

namespace kvarena::cli {

struct SegmentInfo {
  std::string form;  // dense, ragged or packed
  int64_t bytes = 0;
  std::vector<int64_t> entries;  // [kv_heads]
};

struct LayerInfo {
  std::vector<SegmentInfo> segments;            // oldest first
  int64_t bytes = 0;                            // bytes of the segments and the index
  int64_t index_bytes = 0;                      // page bounds and the like
  std::vector<std::vector<int32_t>> positions;  // [kv_heads], ascending, after the prompt
};

/// One decode step. `mass`: the share of full-KV attention that falls on what the method attends to, mean over the
/// query heads of each layer. The full-KV queries and probabilities come from a pass over the full cache with the same
/// tokens.
struct StepInfo {
  int32_t token = 0;         // fed in this step
  std::vector<double> mass;  // [layers], in [0, 1]
  std::vector<std::vector<std::vector<int32_t>>>
      selected;               // [layers][lists]; no list where a layer attends to all it has
  std::vector<float> logits;  // [vocab_size], of the next token, under the method
};

struct Inspection {
  std::vector<LayerInfo> layers;  // right after the prompt
  int64_t resident_bytes = 0;
  int64_t full_bytes = 0;
  int64_t state_bytes = 0;              // in both, of layers without entries
  Activity activity;                    // after the last step
  std::vector<PromptAttention> prompt;  // [layers], of a method that attends to prompts sparsely
  std::vector<StepInfo> steps;
};

/// Compresses a clone of the prompt's cache with `method` and decodes `steps` tokens greedily on it. `method` must not
/// be a verifier (inspect its drafter).
[[nodiscard]] Inspection inspect(Transformer& model, const Prefill& prompt, const Method& method, int64_t steps);

}  // namespace kvarena::cli
