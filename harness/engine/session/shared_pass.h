#pragma once
// One ragged forward pass over many requests.

#include <span>
#include <string>

#include "harness/model/transformer.h"

namespace kvarena {

/// One request's side of shared passes.
class PassMember {
 public:
  virtual ~PassMember() = default;

  /// Says what to feed in the next pass. Spans stay valid until consume() or failed().
  [[nodiscard]] virtual SequencePass next_pass() = 0;
  /// Takes the pass's logits, [rows, vocab_size] as asked for; they last until the model's next pass.
  virtual void consume(std::span<const float> logits) = 0;
  /// Ends the request, which cannot go on, with the reason.
  virtual void failed(const std::string& reason) = 0;
};

/// Collects what each member wants fed, computes it in one forward pass, and hands out the logits. What a member or its
/// hooks throw, whatever it is, ends that member alone: nothing more is asked of it, it fails with the reason, and the
/// pass goes on for the others. Throws what Transformer::forward() throws. Without members nothing is computed.
void run_pass(Transformer& model, std::span<PassMember* const> members);

}  // namespace kvarena
