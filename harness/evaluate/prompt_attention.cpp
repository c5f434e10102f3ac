#include "harness/evaluate/prompt_attention.h"

#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/prefill.h"
#include "harness/engine/session/prompt_meter.h"
#include "harness/evaluate/stored_values.h"
#include "metrics/stored_metrics.h"

namespace kvarena::evaluate {

void add_prompt_attention(results::SampleResult& result, Transformer& model, const Request& request,
                          const Method& method) {
  if (method.prompt_pass() != kWholePrompt) return;
  PromptMeter meter;
  Activity activity;
  (void)state_after_prompt(model, unread_prompt(model, request.prompt, request.facts), method, activity, &meter);
  add(result, metrics::kPromptAttentionKept, meter.mean().kept);
  add(result, metrics::kPromptAttentionComputed, meter.mean().computed);
}

}  // namespace kvarena::evaluate
