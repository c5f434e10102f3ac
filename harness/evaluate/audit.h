#pragma once
// Audit of a method's answers: equality with a reference token by token, and whether a divergence is more than noise.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/engine/session/session.h"
#include "harness/method/method.h"

namespace kvarena::evaluate {

/// An answer and the numbers that its audit compares.
struct AnswerTrace {
  std::vector<int32_t> tokens;
  std::vector<std::array<int32_t, 2>> best;  // of each step the two likeliest tokens
  std::vector<double> gaps;                  // between their logits
  std::vector<std::string> digests;          // of each step's logits: equal for equal bits
};

/// Decodes by `method` alone.
[[nodiscard]] AnswerTrace trace_answer(Transformer& model, const Prefill& prompt, const Method& method,
                                       SessionOptions options);

/// Shifts of the gap between each step's two likeliest tokens when `model`, the same weights in another arithmetic, is
/// fed the same answer. `method` may be the one that gave the answer.
[[nodiscard]] std::vector<double> gap_shifts(Transformer& model, const Prefill& prompt, const Method& method,
                                             const AnswerTrace& answer);

/// One prompt's answers beside each other.
struct Divergence {
  std::optional<int64_t> step;  // first whose token differs, or at which one answer ends; none when they are equal
  double gap = 0;               // of the reference's two likeliest tokens there; 0 behind its end
  bool same_bits = true;        // the logits of all steps up to and with that one
};
[[nodiscard]] Divergence first_difference(const AnswerTrace& reference, const AnswerTrace& other);

/// The noise floor: the value below which all but a hundredth of the shifts lie; 0 of none.
[[nodiscard]] double noise_floor(std::span<const std::vector<double>> shifts);

}  // namespace kvarena::evaluate
