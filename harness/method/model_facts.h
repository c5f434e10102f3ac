#pragma once
// What a method may know about the model beyond the shape of a layer: who it is, how it rotates, what its tokens are,
// and which memory the machine under it has.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/method/fitted.h"

namespace kvarena {

namespace tiers {
class Hierarchy;
}

/// Rotary embedding in the half-split layout: channel pair (c, c + head_dim / 2) at position p turns by
/// p * inverse[c].
struct Rotation {
  std::vector<double> inverse;  // [head_dim / 2], radians per position
  double magnitude = 1.0;       // factor on cosine and sine
};

enum class TokenClass : uint8_t { plain, special, punctuation };

/// The vocabulary and the chat template; empty for a model without text (tests).
struct TextFacts {
  /// Token ids of a text, without special tokens around it.
  std::function<std::vector<int32_t>(std::string_view text)> encode;
  std::vector<int32_t> before_user;     // the chat template's tokens in front of the first user turn
  std::vector<int32_t> after_user;      // between the user's text and the answer
  std::vector<TokenClass> token_class;  // [vocab_size]

  [[nodiscard]] TokenClass class_of(int32_t token) const {
    return static_cast<size_t>(token) < token_class.size() ? token_class[token] : TokenClass::plain;
  }
};

struct ModelFacts {
  std::string name;         // as the checkpoint calls itself
  std::string fingerprint;  // of the weights: equal for equal checkpoints only
  int64_t hidden_size = 0;
  Rotation rotation;
  TextFacts text;
  std::shared_ptr<const tiers::Hierarchy> tiers;  // shared by all requests of the model
  /// What was fitted for this model; see FittedRequest. Throws UserError.
  std::function<std::shared_ptr<const FittedWeights>(const FittedRequest& request)> fitted;
};

}  // namespace kvarena
