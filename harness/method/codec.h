#pragma once
// Quantising: a plugin provides the packed form of a layer; the framework keeps sinks and the residual window, moves
// entries into the packed form as decoding goes on, packs what a dropping method leaves, and counts.
//
//   class Int4 final : public QuantizingCodec {
//    public:
//     void parameters(ParameterVisitor& p) override { p("group_size", group_size_).min(16); }
//     QuantizedFormat format(const LayerContext& layer) const override {
//       const kernels::QuantFormat side{.bits = 4, .group_size = group_size_, .token_groups = true};
//       return {.keys = side, .values = side};
//     }
//     ...
//   };
//   KVARENA_CODEC(Int4, {.name = "int4", .title = "4-bit", .summary = "...", .paper = "..."});

#include <memory>

#include "harness/cache/codec_side_data.h"
#include "harness/cache/quantized_segment.h"
#include "harness/core/nested.h"
#include "harness/method/part_method.h"
#include "harness/method/registry.h"

namespace kvarena {

/// Packs entries. Its needs are the observations that exempt() reads.
class Codec : public MethodPart {
 public:
  /// Problems of these settings with a model's layer ("group_size: found 32, which does not divide head_dim 80"),
  /// empty when none.
  [[nodiscard]] virtual std::string check_layer(const LayerContext& /*layer*/) const { return {}; }

  /// An empty packed segment for one layer. The cache's tail still holds every entry that will be packed first, for
  /// codecs that calibrate on the prompt.
  [[nodiscard]] virtual std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const = 0;
  /// Keys leave the 16-bit tail in blocks of this many tokens, as soon as a block is complete.
  [[nodiscard]] virtual int64_t key_block() const { return 1; }
  /// So many newest keys stay in 16 bits beside those of a block that is not complete.
  [[nodiscard]] virtual int64_t key_residual() const { return 0; }
  /// Exactly this many newest values stay in 16 bits (all while there are fewer).
  [[nodiscard]] virtual int64_t value_residual() const { return 0; }
  /// First entries that stay in 16 bits when the settings do not say.
  [[nodiscard]] virtual int64_t default_sinks() const { return 0; }
  /// Whether a single query attends to view() in place of the layer's segments.
  [[nodiscard]] virtual bool has_views() const { return false; }
  [[nodiscard]] virtual std::unique_ptr<Segment> view(const LayerCache& /*cache*/) const { return nullptr; }
  /// Prompt entries that stay in 16 bits beside the sinks, ascending. Not asked when a dropping method acted first.
  [[nodiscard]] virtual std::vector<int32_t> exempt(const LayerContext& /*layer*/,
                                                    const LayerObservations& /*seen*/) const {
    return {};
  }
  /// Whether a store can hold what it packs: its segments are Storable, and beside an empty tail make_segment() gives
  /// one without entries that load() fills, with what it calibrated too.
  [[nodiscard]] virtual bool storable() const { return false; }
  /// Whether this layer is packed at all.
  [[nodiscard]] virtual bool packs(const LayerContext& /*layer*/) const { return true; }
};

/// A codec whose packed form is a QuantizedSegment: only the format is left to say.
class QuantizingCodec : public Codec {
 public:
  [[nodiscard]] virtual QuantizedFormat format(const LayerContext& layer) const = 0;

  [[nodiscard]] std::string check_layer(const LayerContext& layer) const override;
  [[nodiscard]] std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override;
};

/// A problem when bits are not among those that kernels pack.
void check_bits(const std::string& place, const char* key, int64_t bits, std::vector<std::string>& problems);
/// Why groups of this many channels do not fit a head; empty if they do.
[[nodiscard]] std::string group_size_problem(int64_t group_size, int64_t head_dim);
/// The model's rotation of keys; none where the model is not known.
[[nodiscard]] RotaryKeys rotary_keys(const LayerContext& layer);
/// How scales of a layer are stored where a codec follows the cache: its own 16-bit type, f16 for an f32 cache.
[[nodiscard]] DType meta_type(const LayerShape& shape);

/// The cache is [16-bit sinks][packed][16-bit tail]; prompt attention always uses un-quantised entries, and a new entry
/// is attended in 16 bits at its own step (method sheet, section 0.6). With "over", a dropping method acts on the
/// prompt first and its survivors are packed: every head must keep the same number.
class CodecMethod final : public PartMethod<Codec> {
 public:
  CodecMethod(std::string name, std::unique_ptr<Codec> codec);

  void parameters(ParameterVisitor& p) override;
  void check(const std::string& place, std::vector<std::string>& problems) const override;
  [[nodiscard]] Needs needs() const override;
  void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const override;
  void compress(LayerContext& layer, const LayerObservations& seen) const override;
  [[nodiscard]] bool compresses_by_layer() const override { return !over_ || over_->compresses_by_layer(); }
  void select(LayerContext& layer, const LayerQueries& queries) const override;
  void after_append(LayerContext& layer) const override;
  [[nodiscard]] const Codec& codec() const { return *part_; }
  [[nodiscard]] HookAccess reach() const override { return part_->has_views() ? HookAccess::planes : HookAccess::rows; }

 private:
  void set_apart(LayerContext& layer, const std::vector<int32_t>& entries) const;
  [[nodiscard]] int64_t waiting_sinks(const LayerCache& cache) const;
  [[nodiscard]] PackedSegment* start_packing(LayerContext& layer) const;

  std::string name_;
  int64_t sinks_ = 0;
  Nested<Method> over_;
};

#define KVARENA_CODEC(type, ...)                                                                                    \
  KVARENA_REGISTER(                                                                                                 \
      type, ::kvarena::Family::compression,                                                                         \
      std::make_unique<::kvarena::CodecMethod>((::kvarena::MethodInfo __VA_ARGS__).name, std::make_unique<type>()), \
      __VA_ARGS__)

}  // namespace kvarena
