#pragma once
// Facts about the model beyond the shape of a layer: its identity, its rotation, its tokens, and the memory of the
// machine under it.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/method/fitted.h"
#include "harness/method/searched_rows.h"

namespace kvarena {

namespace storage {
class Hierarchy;
}

/// Rotary embedding in the half-split layout: channel pair (c, c + head_dim / 2) at position p is
/// rotated by p * inverse[c].
struct Rotation {
  std::vector<double> inverse;  // [head_dim / 2], radians per position
  double magnitude = 1.0;       // factor on cosine and sine
};

/// A rotary embedding beside the model's own: of a small network that reads the same tokens.
struct RotaryRequest {
  int64_t head_dim = 0;
  double theta = 10000.0;
  int64_t window = 0;  // positions that it was trained on
  double factor = 1;   // by which YaRN reaches past them; 1 leaves the frequencies as they are
};

enum class TokenClass : uint8_t { plain, special, punctuation };

/// The vocabulary and the chat template; empty for a model without text (tests).
struct TextFacts {
  /// Token ids of a text, without special tokens around it.
  std::function<std::vector<int32_t>(std::string_view text)> encode;
  std::vector<int32_t> before_user;     // the chat template's tokens in front of the first user message
  std::vector<int32_t> after_user;      // between the user's text and the answer
  std::vector<TokenClass> token_class;  // [vocab_size]

  [[nodiscard]] TokenClass class_of(int32_t token) const {
    return static_cast<size_t>(token) < token_class.size() ? token_class[token] : TokenClass::plain;
  }
};

struct ModelFacts {
  std::string name;         // as the checkpoint calls itself
  std::string fingerprint;  // of the weights: equal for equal checkpoints only
  std::string file;         // that the weights were read from, or their folder; empty: made otherwise (tests)
  int64_t hidden_size = 0;
  int64_t weight_bytes = 0;
  int64_t window = 0;   // tokens that the model can take
  bool latent = false;  // every query head reads one cached latent
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  Rotation rotation;                   // of queries and keys, but in some layers
  Rotation own_rotation;               // of these
  std::vector<bool> has_own_rotation;  // [layers], which they are; empty: none
  int64_t rotation_window = 0;         // longest sequence that is rotated so (scaling by length); 0: any
  std::function<Rotation(const RotaryRequest& request)> rotary;
  /// Embeddings of tokens, rows [tokens, hidden_size]. The model must be alive.
  std::function<void(std::span<const int32_t> tokens, float* rows)> embed;
  int64_t vocab_size = 0;
  /// The model's logits for rows of its residual stream behind the last layer, [count, hidden_size] ->
  /// [count, vocab_size]. The model must be alive.
  std::function<void(const float* rows, int64_t count, float* logits)> predict;
  TextFacts text;
  [[nodiscard]] bool rotates_apart(int64_t layer) const {
    return !has_own_rotation.empty() && has_own_rotation[static_cast<size_t>(layer)];
  }
  [[nodiscard]] const Rotation& rotation_of(int64_t layer) const {
    return rotates_apart(layer) ? own_rotation : rotation;
  }
  std::shared_ptr<const storage::Hierarchy> tiers;  // shared by all requests of the model
  /// Room for keys of a small network, where the model's passes run: of so many heads and channels, none yet.
  std::function<std::unique_ptr<SearchedKeys>(int64_t kv_heads, int64_t head_dim, const LedgerPtr& ledger)>
      searched_keys = searched_rows;
  /// Weights that were fitted for this model; see FittedRequest. Throws UserError.
  std::function<std::shared_ptr<const FittedWeights>(const FittedRequest& request)> fitted;
};

}  // namespace kvarena
