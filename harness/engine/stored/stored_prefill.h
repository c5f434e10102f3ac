#pragma once
// A prefill at rest: the full cache, the first logits and everything that was observed.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "harness/engine/session/prefill.h"

namespace kvarena {

/// Writes a prompt as prefill() of the model gave it. Throws UserError where some of its layers hold a state instead of
/// entries.
[[nodiscard]] std::vector<std::byte> store_prefill(const Transformer& model, const Prefill& prompt);

/// The prompt that these bytes are, as prefill() of the same model, tokens and needs gives it, bit for bit, in no time.
/// Throws UserError on bytes that are cut or name another shape. The model must outlive what observed its output
/// projection.
[[nodiscard]] Prefill restore_prefill(Transformer& model, std::span<const int32_t> tokens, const Needs& needs,
                                      std::shared_ptr<const ModelFacts> facts, std::span<const std::byte> bytes);

}  // namespace kvarena
