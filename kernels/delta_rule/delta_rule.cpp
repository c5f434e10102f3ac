#include "kernels/delta_rule/delta_rule.h"

#include "kernels/common/parallel.h"
#include "kernels/delta_rule/delta_rule_paths.h"

namespace kvarena::kernels {
namespace {

const DeltaRuleTable& table() {
  const DeltaRuleTable* fast = KVARENA_ACTIVE_TABLE(delta_rule_table);
  return fast != nullptr ? *fast : delta_rule_reference;
}

constexpr int64_t kMostTaps = 16;

}  // namespace

void short_convolution(const ShortConvolutionArgs& args) {
  require(args.taps >= 1 && args.taps <= kMostTaps, "short_convolution: 1 to 16 taps");
  const DeltaRuleTable& use = table();
  parallel_for(args.tokens, args.tokens * args.channels * args.taps, [&](int64_t token) {
    const float* rows[kMostTaps];
    for (int64_t j = 0; j < args.taps; ++j) {
      const int64_t at = token - args.taps + 1 + j;
      rows[j] = at >= 0 ? args.x + at * args.x_stride : args.before + (at + args.taps - 1) * args.channels;
    }
    use.convolve(rows, args.weight, args.out + token * args.out_stride, args.taps, args.channels);
  });
}

void delta_rule(const DeltaRuleArgs& args) {
  require(args.k_heads > 0 && args.v_heads % args.k_heads == 0, "delta_rule: v_heads must be a multiple of k_heads");
  const DeltaRuleTable& use = table();
  const int64_t group = args.v_heads / args.k_heads;
  const int64_t operations = 3 * args.tokens * args.v_heads * args.k_dim * args.v_dim;
  parallel_for(args.v_heads, operations, [&](int64_t head) {
    float* const state = args.state + head * args.k_dim * args.v_dim;
    const int64_t key = head / group * args.k_dim, value = head * args.v_dim;
    for (int64_t t = 0; t < args.tokens; ++t) {
      const int64_t row = t * args.qkv_stride, gate = t * args.gate_stride + head;
      use.step(args.q + row + key, args.k + row + key, args.v + row + value, args.decay[gate], args.beta[gate], state,
               args.out != nullptr ? args.out + t * args.out_stride + value : nullptr, args.k_dim, args.v_dim);
    }
  });
}

}  // namespace kvarena::kernels
