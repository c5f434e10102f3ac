#pragma once
// Checks of a pass's model and tokens, made before anything changes.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "harness/model/config.h"

namespace kvarena {

/// Throws UserError when head sizes of cache entries are no multiples of 16.
void check_entries(const ModelConfig& config);

/// Throws UserError, beginning with `place`, when a model has recurrent layers: a state is of all tokens before it, so
/// that `what` (reuse of entries, ...) cannot be had of some.
void require_entries(const ModelConfig& config, const std::string& place, std::string_view what);

/// Throws UserError when an id is outside the vocabulary.
void check_tokens(const ModelConfig& config, std::span<const int32_t> tokens);

/// Throws UserError when a sequence of `length` tokens outgrows the model's window.
void check_window(const ModelConfig& config, int64_t length);

/// Asserts that positions ascend and leave no gap behind a cache of `length` tokens.
void check_positions(std::span<const int32_t> positions, int64_t length);

}  // namespace kvarena
