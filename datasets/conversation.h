#pragma once
// Turns of a conversation: several questions about one context, or messages that follow from answers.

#include <optional>

#include "datasets/workload.h"

namespace kvarena::datasets {

/// Puts an answer to the sample, and the message that follows it, at its end. `results`: those in the message.
void add_turn(Sample& sample, const std::string& answer, const std::string& message,
              std::vector<ToolResult> results = {});

/// Turns samples of one context, in their order, into turns: between the context and a sample's question come those of
/// the samples before it, each with its reference answer. SCBench's multi-turn mode does so unless told otherwise, so
/// that a wrong answer costs its own turn alone, and all methods answer after the same text.
class Conversation {
 public:
  /// Puts the earlier turns into `sample`. The first of its context, and one that shares none, stays as it is. Throws
  /// UserError where what follows the context is more than one message.
  void join(Sample& sample);

 private:
  std::optional<Sample> last_;  // with its own earlier turns
};

}  // namespace kvarena::datasets
