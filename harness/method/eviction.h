#pragma once
// Eviction: where the stored caches of many contexts lie, and in which form. A policy decides
// (harness/storage/placement); the cache of a single request is left as it is.

#include <memory>
#include <span>
#include <vector>

#include "harness/core/nested.h"
#include "harness/method/method.h"
#include "harness/method/registry.h"
#include "harness/storage/placement/policy.h"

namespace kvarena {

/// Division of contexts into chunks that lie on tiers by themselves, of which a request reads those that hold a token
/// that it needs.
class Chunking {
 public:
  virtual ~Chunking() = default;

  /// Tokens of a chunk, a multiple of 16; the last one of a context may have fewer.
  [[nodiscard]] virtual int64_t chunk_tokens() const = 0;
  /// Layers of a chunk, of so many; the last ones may be fewer.
  [[nodiscard]] virtual int64_t chunk_layers(int64_t layers) const = 0;
  /// Observations of a prompt that needed() is told.
  [[nodiscard]] virtual Needs observed() const = 0;
  /// The tokens of a prompt, ascending, that requests need in such layers of a chunk, at least one.
  [[nodiscard]] virtual std::vector<int32_t> needed(std::span<const LayerContext> layers,
                                                    std::span<const LayerObservations> seen) const = 0;
  /// Whether requests attend to the other tokens of the chunks that they read as well.
  [[nodiscard]] virtual bool attends_to_others() const = 0;
};

/// The part that all placing methods share: with "compress", all contexts come compressed alike, and the policy places
/// them as they come.
class PlacingMethod : public Method {
 public:
  void parameters(ParameterVisitor& p) override;
  [[nodiscard]] HookAccess reach() const override { return HookAccess::nothing; }

  /// The division of contexts into chunks, which come uncompressed; null where they are stored whole.
  [[nodiscard]] virtual const Chunking* chunking() const { return nullptr; }

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
