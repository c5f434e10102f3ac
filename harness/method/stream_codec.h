#pragma once
// Codecs for caches at rest and on the wire: a cache becomes a stream of self-contained chunks, which are decoded to
// the cache's own 16 bits before anyone attends to them. They save storage and transfer, not resident memory.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "harness/method/part_method.h"
#include "harness/method/registry.h"

namespace kvarena {

/// Keys and values of consecutive tokens, all layers.
struct KvChunk {
  int64_t layers = 0;
  int64_t tokens = 0;
  int64_t channels = 0;       // kv_heads * head_dim, a multiple of 16
  std::vector<float> keys;    // [layers, tokens, channels]
  std::vector<float> values;  // likewise

  /// Gives keys and values their sizes.
  void resize();
  [[nodiscard]] float* row(bool key, int64_t layer, int64_t token) {
    return (key ? keys : values).data() + (layer * tokens + token) * channels;
  }
  [[nodiscard]] const float* row(bool key, int64_t layer, int64_t token) const {
    return (key ? keys : values).data() + (layer * tokens + token) * channels;
  }
};

/// Turns chunks of one model's caches into bytes and back.
class StreamCoder {
 public:
  virtual ~StreamCoder() = default;

  /// The bytes of a chunk of finite numbers. Deterministic. Throws UserError on numbers that cannot be coded.
  [[nodiscard]] virtual std::vector<uint8_t> encode(const KvChunk& chunk) const = 0;
  /// Fills a chunk whose sizes are set. Throws UserError on bytes that encode() cannot have written; never reads beyond
  /// them and never runs longer than the sizes ask for.
  virtual void decode(std::span<const uint8_t> bytes, KvChunk& chunk) const = 0;
  /// The fewest bytes in which encode() can write a chunk of these sizes: fewer cannot be one, and no memory is taken
  /// for them. Throws UserError for sizes that it never writes.
  [[nodiscard]] virtual int64_t least_bytes(const KvChunk& sizes) const = 0;
};

/// Describes a codec for caches at rest, and makes its coders.
class StreamCodec : public MethodPart {
 public:
  /// Tokens of a chunk, the last excepted.
  [[nodiscard]] virtual int64_t chunk_tokens() const = 0;
  /// First and last tokens of a prompt that stay as they are.
  [[nodiscard]] virtual int64_t sinks() const { return 0; }
  [[nodiscard]] virtual int64_t recent() const { return 0; }
  /// Whether keys are handed over without their rotary rotation.
  [[nodiscard]] virtual bool before_rotation() const { return false; }
  /// Whether a token is coded over all layers of the model together.
  [[nodiscard]] virtual bool spans_layers() const { return false; }

  /// A coder for the model's caches; `model` is null in tests that need none. Throws UserError where what the codec
  /// needs is not there: weights, a library.
  [[nodiscard]] virtual std::unique_ptr<StreamCoder> coder(const ModelFacts* model) const = 0;
};

/// One chunk with its sizes and a checksum, so that a stream may be cut at frames and read as it arrives.
[[nodiscard]] std::vector<uint8_t> write_frame(const StreamCoder& coder, const KvChunk& chunk);
/// Reads the first frame of `stream` and moves the span behind it. Throws UserError, naming the byte, when it is
/// truncated or damaged.
[[nodiscard]] KvChunk read_frame(const StreamCoder& coder, std::span<const uint8_t>& stream);

/// Takes the prompt's cache through the codec and back, chunk by chunk: decoding then sees the cache that would come
/// back from storage.
class StreamCodecMethod final : public PartMethod<StreamCodec> {
 public:
  using PartMethod::PartMethod;

  void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const override;
  [[nodiscard]] HookAccess reach() const override { return HookAccess::nothing; }
  [[nodiscard]] bool can_leave_layers_out() const override { return !part_->spans_layers(); }

  [[nodiscard]] const StreamCodec& codec() const { return *part_; }
  /// Tokens of `n` that go through the codec: begin .. end-1, the rest stays as it is. None where begin >= end.
  struct Coded {
    int64_t begin = 0;
    int64_t end = 0;
  };
  [[nodiscard]] Coded coded(int64_t n) const { return {.begin = part_->sinks(), .end = n - part_->recent()}; }
  /// The coded() tokens of dense tails as frames, one after the other; all layers of a request, of one shape.
  [[nodiscard]] std::vector<uint8_t> encode(std::span<LayerContext> layers) const;
  /// Appends the tokens of such frames to the tails, at `position` and after. Throws UserError as read_frame() does,
  /// and on frames of another shape.
  void decode(std::span<const uint8_t> stream, std::span<LayerContext> layers, int64_t position) const;
};

#define KVARENA_STREAM(type, ...)                        \
  KVARENA_REGISTER(type, ::kvarena::Family::compression, \
                   std::make_unique<::kvarena::StreamCodecMethod>(std::make_unique<type>()), __VA_ARGS__)

}  // namespace kvarena
