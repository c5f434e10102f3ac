#pragma once
// Internal: one token's convolution, and one token in one head.

#include "kernels/common/dispatch.h"
#include "kernels/delta_rule/delta_rule.h"

namespace kvarena::kernels {

struct DeltaRuleTable {
  /// out[c] = sum over j of weight[j * channels + c] * rows[j][c].
  void (*convolve)(const float* const* rows, const float* weight, float* out, int64_t taps, int64_t channels);
  /// `out` [v_dim] may be null.
  void (*step)(const float* q, const float* k, const float* v, float decay, float beta, float* state, float* out,
               int64_t k_dim, int64_t v_dim);
};
KVARENA_DECLARE_TABLE(DeltaRuleTable, delta_rule_table);

extern const DeltaRuleTable delta_rule_reference;

}  // namespace kvarena::kernels
