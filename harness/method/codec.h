#pragma once
// Quantising: a plugin provides the packed form of a layer; the framework keeps the residual window, moves entries
// into the packed form as decoding goes on, and counts.

#include <memory>

#include "harness/cache/packed_segment.h"
#include "harness/method/method.h"
#include "harness/method/registry.h"

namespace kvarena {

class Codec {
 public:
  virtual ~Codec() = default;

  virtual void parameters(ParameterVisitor& p) = 0;
  virtual void check(const std::string& /*place*/, std::vector<std::string>& /*problems*/) const {}
  /// Problems of these settings with a model's shapes ("head_dim 80 is no multiple of group_size 32"), empty when none.
  [[nodiscard]] virtual std::string check_shape(const LayerShape& /*shape*/) const { return {}; }

  /// An empty packed segment for one layer.
  [[nodiscard]] virtual std::unique_ptr<PackedSegment> make_segment(const LayerShape& shape,
                                                                    const LedgerPtr& ledger) const = 0;
  /// Keys leave the 16-bit tail in blocks of this many tokens, as soon as a block is complete.
  [[nodiscard]] virtual int64_t key_block() const = 0;
  /// Exactly this many newest values stay in 16 bits (all while there are fewer).
  [[nodiscard]] virtual int64_t value_residual() const = 0;
};

/// The cache is [packed][16-bit tail]; prompt attention always uses un-quantised entries, and a new entry is attended
/// in 16 bits at its own step (method sheet, section 0.6).
class CodecMethod final : public Method {
 public:
  explicit CodecMethod(std::unique_ptr<Codec> codec) : codec_(std::move(codec)) {}

  void parameters(ParameterVisitor& p) override { codec_->parameters(p); }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    codec_->check(place, problems);
  }
  void compress(LayerContext& layer, const LayerObservations& seen) const override;
  void settle(LayerContext& layer) const override;

 private:
  std::unique_ptr<Codec> codec_;
};

#define KVARENA_CODEC(type, ...)                                                                              \
  KVARENA_REGISTER(                                                                                           \
      type, ::kvarena::Family::compression,                                                                   \
      std::unique_ptr<::kvarena::Method>(std::make_unique<::kvarena::CodecMethod>(std::make_unique<type>())), \
      __VA_ARGS__)

}  // namespace kvarena
