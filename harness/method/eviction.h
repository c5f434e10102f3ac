#pragma once
// Eviction: where the stored caches of many contexts lie, and in which form. A policy decides
// (harness/storage/placement); the cache of a single request is left as it is.

#include <memory>

#include "harness/core/nested.h"
#include "harness/method/method.h"
#include "harness/method/registry.h"
#include "harness/storage/placement/policy.h"

namespace kvarena {

/// The part that all placing methods share: with "compress", all contexts come compressed alike, and the policy places
/// them as they come.
class PlacingMethod : public Method {
 public:
  void parameters(ParameterVisitor& p) override;
  [[nodiscard]] HookAccess reach() const override { return HookAccess::nothing; }

  /// The method of "compress"; absent where contexts come uncompressed.
  [[nodiscard]] const Nested<Method>& compressor() const { return compress_; }

 private:
  Nested<Method> compress_;
};

/// A placement policy under its registered name. `P` is a storage::Policy with a function
/// parameters(ParameterVisitor&).
template <typename P>
class EvictionMethod final : public PlacingMethod {
 public:
  void parameters(ParameterVisitor& p) override {
    policy_.parameters(p);
    PlacingMethod::parameters(p);
  }
  [[nodiscard]] const storage::Policy* placement() const override { return &policy_; }

 private:
  P policy_;
};

#define KVARENA_EVICTION(type, ...) \
  KVARENA_REGISTER(type, ::kvarena::Family::eviction, std::make_unique<::kvarena::EvictionMethod<type>>(), __VA_ARGS__)

}  // namespace kvarena
