#pragma once
// Shares of a prompt's attention that a method computes which attends to prompts sparsely.

#include "harness/evaluate/request.h"
#include "harness/method/method.h"
#include "harness/model/transformer.h"
#include "harness/results/records.h"

namespace kvarena::evaluate {

/// Adds prompt_attention_kept and prompt_attention_computed, means over layers, of a method that attends to prompts in
/// a way of its own; nothing of others. The request's prompt is read once more, and attended to in full beside.
void add_prompt_attention(results::SampleResult& result, Transformer& model, const Request& request,
                          const Method& method);

}  // namespace kvarena::evaluate
