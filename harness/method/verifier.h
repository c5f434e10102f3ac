#pragma once
// Verification: tokens are drafted cheaply and checked in one multi-query pass over the full cache.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "harness/cache/memory.h"
#include "harness/core/nested.h"
#include "harness/method/part_method.h"
#include "harness/method/registry.h"

namespace kvarena {

/// How tokens are drafted when sampling (temperature > 0); greedy decoding drafts greedily whatever is chosen.
enum class DraftSampling {
  /// With the very draw that the verifier will use at that position: what is emitted equals plain decoding with the
  /// same seed, token for token.
  coupled,
  /// Always the likeliest token, accepted when plain decoding would have drawn it: the same output, fewer accepted.
  greedy,
  /// Draws of its own, accepted with probability min(1, p/q): the output has the verifier's distribution, not its very
  /// tokens. Leviathan et al. 2023, arXiv:2211.17192, section 2.3.
  rejection,
};

/// The target drafts on a compressed copy of its cache.
struct CompressedCopy {
  Nested<Method> compressor;
  /// A verifier whose drafts the copy verifies first, so that one pass over it may yield several: one that drafts by
  /// another checkpoint, a head or a rule. Absent: each pass drafts one token.
  Nested<Method> auxiliary;
  /// How verifications are placed when the full caches of many requests lie behind the device, "staggered", "lock_step"
  /// or "sequential" (harness/cost_model/verification_schedule.h). Empty: they stay on it.
  std::string schedule;
  Tier tier = Tier::host;  // that holds them meanwhile
  /// Staggered: whether full caches stay on the device where there is room, and whether drafting ends for those where
  /// full KV alone gives more tokens.
  bool pin = true;
  bool fall_back = true;
  /// The path of requests whose prompts' caches lie in a store behind links, one that verifies
  /// (harness/cost_model/remote_prefix.h). Empty: the mix of paths that serves the most tokens.
  std::string prefix_path;
};

/// The target drafts on the very cache that it verifies on, through what a method shows of it to single queries. The
/// method compresses nothing, sees every verification, and must bear that newest entries are taken back.
struct CacheView {
  Nested<Method> method;
};

/// The target drafts with its first layers, and their entries of the full cache.
struct FirstLayers {
  double share = 0;  // of the layers, in (0, 1]
};

/// A second checkpoint drafts on a full cache of its own.
struct OtherCheckpoint {
  std::string path;  // a folder of KVARENA_HOME/models, a folder or .gguf file
};

/// A head drafts from the target's features (draft_head.h).
struct DraftingHead {
  FittedRequest weights;
  double yarn = 1;          // YaRN's factor on the window that it was trained on
  int64_t beams = 1;        // above 1 drafts are a tree: so many tokens go on at each depth
  int64_t tree_tokens = 0;  // drafts of a tree that are verified, the likeliest
};

/// A rule drafts, without a model: at most `limit` tokens that may follow `history`, prompt included. None is allowed:
/// the round then emits one token.
struct TextRule {
  std::function<std::vector<int32_t>(std::span<const int32_t> history, int64_t limit)> propose;
};

using Drafter = std::variant<CompressedCopy, CacheView, FirstLayers, OtherCheckpoint, DraftingHead, TextRule>;

/// Proposes tokens. The engine owns the loop, so that drafts and verifications of many requests share passes: it
/// drafts, verifies x + 1 positions in one pass over the full cache, keeps the longest prefix that full-KV decoding
/// accepts, adds the correction or bonus token, and rolls the drafter back.
///
/// Its parameters are those beside draft_sampling, which the framework declares; drafting methods' needs are added to
/// its own.
class Verifier : public MethodPart {
 public:
  /// Tokens proposed in a round, or passes of the target that propose them.
  [[nodiscard]] virtual int64_t draft_length() const = 0;
  [[nodiscard]] DraftSampling draft_sampling() const;

  /// Where drafts come from. Its rule may refer to the verifier, which outlives it.
  [[nodiscard]] virtual Drafter drafter() const = 0;
  /// The compressor on whose cache verifications run; absent: full KV. The output is that of plain decoding under it.
  [[nodiscard]] virtual Nested<Method> verified_cache() const { return {}; }
  /// Tokens that a round may draft at most while `newest` entries of the verified cache lie in its tail. With a
  /// verified_cache(), none may leave it before the round's last: that makes rounds equal plain decoding bit for bit.
  [[nodiscard]] virtual int64_t draft_room(int64_t /*newest*/) const { return draft_length(); }

 private:
  friend class VerificationMethod;  // declares draft_sampling_
  std::string draft_sampling_ = "coupled";
};

class VerificationMethod final : public PartMethod<Verifier> {
 public:
  using PartMethod::PartMethod;

  void parameters(ParameterVisitor& p) override;
  /// Needs of the verifier and of all methods that draft or are verified on.
  [[nodiscard]] Needs needs() const override;
  /// Where any of these methods does, and where full caches lie behind the device between verifications.
  [[nodiscard]] bool looks_behind_windows() const override;
  [[nodiscard]] const Verifier* verifier() const override { return part_.get(); }
};

#define KVARENA_VERIFIER(type, ...)                       \
  KVARENA_REGISTER(type, ::kvarena::Family::verification, \
                   std::make_unique<::kvarena::VerificationMethod>(std::make_unique<type>()), __VA_ARGS__)

}  // namespace kvarena
