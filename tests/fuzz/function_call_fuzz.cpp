#include "metrics/functional/function_call.h"
#include "tests/fuzz/fuzz.h"

/// A model's answer.
KVARENA_FUZZ(function_call, data) {
  const auto calls = kvarena::metrics::parse_function_calls(kvarena::fuzz::text_of(data));
  for (const kvarena::metrics::FunctionCall& call : calls) {
    if (!kvarena::metrics::same_call(call, call)) __builtin_trap();
  }
  if (calls.size() <= 32) (void)kvarena::metrics::pair_calls(calls, calls);
}
