#pragma once
// Needs of methods: observations that a prefill may be asked for.

#include "harness/method/method.h"

namespace kvarena::testing {

/// All that a prefill can be asked to observe and that needs no pass of its own.
inline const Needs kEverything{
    .prompt_attention = true, .window = 64, .hidden = true, .query_moments = {4}, .taps = {Tap::low}};

}  // namespace kvarena::testing
