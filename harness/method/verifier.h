#pragma once
// Verification: tokens are drafted cheaply and checked in one multi-query pass over the full cache.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "harness/method/fitter.h"
#include "harness/method/method.h"
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

/// A head that drafts from the target's features (draft_head.h).
struct HeadDrafting {
  FittedRequest weights;
  double yarn = 1;          // YaRN's factor on the window that it was trained on
  int64_t beams = 1;        // above 1 drafts are a tree: so many tokens go on at each depth
  int64_t tree_tokens = 0;  // of it that are verified, the likeliest
};

/// Proposes tokens. The engine owns the loop, so that drafts and verifications of many requests share passes: it
/// drafts, verifies x + 1 positions in one pass over the full cache, keeps the longest prefix that full-KV decoding
/// accepts, adds the correction or bonus token, and rolls the drafter back.
///
/// A verifier overrides exactly one of drafter(), draft_view(), draft_model(), draft_layers(), draft_head(),
/// propose(): where its drafts come from.
class Verifier {
 public:
  virtual ~Verifier() = default;
  /// Parameters beside draft_sampling, which the framework declares.
  virtual void parameters(ParameterVisitor& p) = 0;
  virtual void check(const std::string& /*place*/, std::vector<std::string>& /*problems*/) const {}

  /// Tokens proposed in a round, or passes of the target that propose them.
  [[nodiscard]] virtual int64_t draft_length() const = 0;
  [[nodiscard]] DraftSampling draft_sampling() const;

  /// The target itself drafts on a compressed cache: settings of the compressor as JSON text.
  [[nodiscard]] virtual std::string drafter() const { return {}; }
  /// The target drafts on the very cache that it verifies on, through what a method shows of it to single queries:
  /// settings of that method as JSON text. It compresses nothing, sees every verification, and must bear that newest
  /// entries are taken back.
  [[nodiscard]] virtual std::string draft_view() const { return {}; }
  /// What verifications attend to where that is not full KV: settings of a compressor as JSON text. The output is that
  /// of plain decoding under it.
  [[nodiscard]] virtual std::string verified_cache() const { return {}; }
  /// Tokens that a round may draft at most while `newest` entries of the verified cache lie in its tail. With a
  /// verified_cache(), none may leave it before the round's last: that makes rounds equal plain decoding bit for bit.
  [[nodiscard]] virtual int64_t draft_room(int64_t /*newest*/) const { return draft_length(); }
  /// Who drafts for the drafter: settings of a verifier whose drafts the cache of drafter() verifies first, so that one
  /// of its passes may yield several. One with a draft_model(), a draft_head() or a rule.
  [[nodiscard]] virtual std::string auxiliary() const { return {}; }
  /// With a drafter(): how verifications are placed when the full caches of many requests lie behind the device,
  /// "staggered", "lock_step" or "sequential" (harness/cost_model/verification_schedule.h). Empty: they stay on it.
  [[nodiscard]] virtual std::string schedule() const { return {}; }
  /// With a drafter(): the path of requests whose prompts' caches lie in a store behind links, one that verifies
  /// (harness/cost_model/remote_prefix.h). Empty: the mix of paths that serves the most tokens.
  [[nodiscard]] virtual std::string prefix_path() const { return {}; }
  /// A second checkpoint drafts on a full cache of its own: its folder or .gguf file.
  [[nodiscard]] virtual std::string draft_model() const { return {}; }
  /// The target drafts with its first layers, and their entries of the full cache: the share of layers, in (0, 1).
  [[nodiscard]] virtual double draft_layers() const { return 0; }
  /// A head on the target's features drafts.
  [[nodiscard]] virtual std::optional<HeadDrafting> draft_head() const { return std::nullopt; }
  /// No model drafts: at most `limit` tokens that may follow `history`, prompt included. None is allowed: the round
  /// then emits one token.
  [[nodiscard]] virtual std::vector<int32_t> propose(std::span<const int32_t> /*history*/, int64_t /*limit*/) const {
    return {};
  }

  /// How the verifier's weights are fitted, null for one without any.
  [[nodiscard]] virtual std::unique_ptr<Fitter> fitter() const;

 private:
  friend class VerificationMethod;  // which declares it
  std::string draft_sampling_ = "coupled";
};

class VerificationMethod final : public Method {
 public:
  explicit VerificationMethod(std::unique_ptr<Verifier> verifier) : verifier_(std::move(verifier)) {}

  void parameters(ParameterVisitor& p) override;
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    verifier_->check(place, problems);
  }
  /// What the drafter needs.
  [[nodiscard]] Needs needs() const override;
  [[nodiscard]] std::unique_ptr<Fitter> fitter() const override { return verifier_->fitter(); }
  [[nodiscard]] const Verifier* verifier() const override { return verifier_.get(); }

 private:
  std::unique_ptr<Verifier> verifier_;
};

#define KVARENA_VERIFIER(type, ...)                                                                                  \
  KVARENA_REGISTER(                                                                                                  \
      type, ::kvarena::Family::verification,                                                                         \
      std::unique_ptr<::kvarena::Method>(std::make_unique<::kvarena::VerificationMethod>(std::make_unique<type>())), \
      __VA_ARGS__)

}  // namespace kvarena
