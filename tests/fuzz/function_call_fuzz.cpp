#include "metrics/functional/function_call.h"
#include "tests/fuzz/fuzz.h"

/// A model's answer.
KVARENA_FUZZ(function_call, data) {
  const auto calls = kvarena::parse_function_calls(kvarena::fuzz::text_of(data));
  for (const kvarena::FunctionCall& call : calls) {
    if (!kvarena::same_call(call, call)) __builtin_trap();
  }
  if (calls.size() <= 32) (void)kvarena::pair_calls(calls, calls);
}
