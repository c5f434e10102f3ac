#pragma once
// Verification: tokens are drafted cheaply and checked in one multi-query pass over the full cache.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "harness/method/method.h"
#include "harness/method/registry.h"

namespace kvarena {

/// Proposes tokens. The engine owns the loop, so that drafts and verifications of many requests share passes: it
/// decodes on the drafter's cache, verifies x + 1 positions in one pass over the full cache, keeps the longest prefix
/// that full-KV decoding would have produced, adds the correction or bonus token, and rolls the drafter back.
class Verifier {
 public:
  virtual ~Verifier() = default;
  virtual void parameters(ParameterVisitor& p) = 0;
  virtual void check(const std::string& /*place*/, std::vector<std::string>& /*problems*/) const {}

  /// Tokens proposed in a round.
  [[nodiscard]] virtual int64_t draft_length() const = 0;
  /// Settings of the compressor whose cache drafts, as JSON text; empty when drafting needs no cache of its own.
  [[nodiscard]] virtual std::string drafter() const { return {}; }

  /// With a drafter: the next drafted token, from the drafter's logits [vocab_size]. Greedy unless overridden.
  [[nodiscard]] virtual int32_t draft(std::span<const float> logits) const;
  /// Without one: at most `limit` tokens that may follow `history`, prompt included. None is allowed: the round then
  /// emits one token.
  [[nodiscard]] virtual std::vector<int32_t> propose(std::span<const int32_t> /*history*/, int64_t /*limit*/) const {
    return {};
  }
};

class VerificationMethod final : public Method {
 public:
  explicit VerificationMethod(std::unique_ptr<Verifier> verifier) : verifier_(std::move(verifier)) {}

  void parameters(ParameterVisitor& p) override { verifier_->parameters(p); }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    verifier_->check(place, problems);
  }
  /// What the drafter needs.
  [[nodiscard]] Needs needs() const override;
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
