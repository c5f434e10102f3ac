#include "harness/method/stream_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "harness/core/error.h"
#include "harness/method/fitter.h"
#include "harness/method/model_facts.h"
#include "kernels/rope/rope.h"

namespace kvarena {
namespace {

constexpr std::array<uint8_t, 4> kMagic = {'K', 'V', 'S', '1'};
constexpr size_t kHeaderBytes = 4 + 3 * 4 + 8 + 8;   // magic, sizes, payload bytes, checksum
constexpr int64_t kMostElements = int64_t{1} << 26;  // of one side of a chunk

void put(std::vector<uint8_t>& to, uint64_t x, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<uint8_t>(x >> (8 * i)));
}
uint64_t get(std::span<const uint8_t> from, size_t at, int bytes) {
  uint64_t x = 0;
  for (int i = 0; i < bytes; ++i) x |= uint64_t{from[at + static_cast<size_t>(i)]} << (8 * i);
  return x;
}

/// FNV-1a over the sizes and the payload.
uint64_t checksum(std::span<const uint8_t> sizes, std::span<const uint8_t> payload) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const auto& part : {sizes, payload}) {
    for (const uint8_t byte : part) hash = (hash ^ byte) * 0x100000001b3U;
  }
  return hash;
}

[[noreturn]] void damaged(const std::string& found, const std::string& expected) {
  fail(
      {.place = "cache stream", .found = found, .expected = expected, .action = "it was cut or damaged; encode again"});
}

/// Rotates a chunk's keys to positions first and after, or from them back to none; neighbouring layers that are rotated
/// alike by one table.
void rotate_keys(KvChunk& chunk, std::span<const LayerContext> layers, int64_t first, bool back) {
  const LayerContext& layer = layers.front();
  if (layer.model == nullptr || layer.model->rotation.inverse.empty()) return;
  const auto half = std::ssize(layer.model->rotation.inverse);
  std::vector<int32_t> by(static_cast<size_t>(chunk.tokens));
  for (int64_t t = 0; t < chunk.tokens; ++t) by[t] = static_cast<int32_t>(back ? -(first + t) : first + t);
  std::vector<float> cos(static_cast<size_t>(chunk.tokens * half)), sin(cos.size());
  const int64_t head_dim = layer.cache.shape().head_dim;
  const Rotation* tabulated = nullptr;
  for (int64_t at = 0; at < chunk.layers; ++at) {
    if (const Rotation* wanted = &layer.model->rotation_of(layers[at].layer); wanted != tabulated) {
      tabulated = wanted;
      kernels::rotation_tables(by.data(), chunk.tokens, wanted->inverse.data(), half, /*magnitude=*/1, cos.data(),
                               sin.data());
    }
    kernels::rotate({.x = chunk.row(true, at, 0),
                     .tokens = chunk.tokens,
                     .heads = chunk.channels / head_dim,
                     .head_dim = head_dim,
                     .token_stride = chunk.channels,
                     .head_stride = head_dim,
                     .rotary = 2 * half,
                     .cos = cos.data(),
                     .sin = sin.data()});
  }
}

/// Entries begin .. end-1 of every layer's tail.
KvChunk gather(std::span<LayerContext> layers, int64_t begin, int64_t end) {
  const LayerShape& shape = layers[0].cache.shape();
  const int64_t d = shape.head_dim;
  KvChunk chunk{.layers = static_cast<int64_t>(layers.size()),
                .tokens = end - begin,
                .channels = shape.kv_heads * d,
                .keys = {},
                .values = {}};
  chunk.resize();
  for (int64_t layer = 0; layer < chunk.layers; ++layer) {
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      layers[layer].cache.tail().read_some(h, begin, chunk.tokens, chunk.row(true, layer, 0) + h * d,
                                           chunk.row(false, layer, 0) + h * d, chunk.channels);
    }
  }
  return chunk;
}

/// Appends a chunk to every layer's tail.
void append(const KvChunk& chunk, std::span<LayerContext> layers, int64_t position) {
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const auto at = static_cast<int64_t>(layer);
    layers[layer].cache.tail().append(chunk.row(true, at, 0), chunk.row(false, at, 0), chunk.tokens, chunk.channels,
                                      position);
  }
}

void require_finite(const KvChunk& chunk) {
  for (const bool key : {true, false}) {
    for (int64_t layer = 0; layer < chunk.layers; ++layer) {
      for (int64_t t = 0; t < chunk.tokens; ++t) {
        const float* x = chunk.row(key, layer, t);
        if (std::all_of(x, x + chunk.channels, [](float v) { return std::isfinite(v); })) continue;
        fail({.place = fmt::format("layer {}, token {}", layer, t),
              .found = fmt::format("a {} that is not finite", key ? "key" : "value"),
              .expected = "numbers that can be coded"});
      }
    }
  }
}

}  // namespace

void KvChunk::resize() {
  keys.resize(static_cast<size_t>(layers * tokens * channels));
  values.resize(keys.size());
}

std::vector<uint8_t> write_frame(const StreamCoder& coder, const KvChunk& chunk) {
  require_finite(chunk);
  const std::vector<uint8_t> payload = coder.encode(chunk);
  std::vector<uint8_t> frame(kMagic.begin(), kMagic.end());
  for (const int64_t size : {chunk.layers, chunk.tokens, chunk.channels}) put(frame, static_cast<uint64_t>(size), 4);
  put(frame, payload.size(), 8);
  put(frame, checksum(std::span(frame).subspan(4, 20), payload), 8);
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

KvChunk read_frame(const StreamCoder& coder, std::span<const uint8_t>& stream) {
  if (stream.size() < kHeaderBytes) {
    damaged(fmt::format("{} bytes", stream.size()), fmt::format("a frame header of {} bytes", kHeaderBytes));
  }
  if (!std::ranges::equal(stream.first(4), kMagic)) damaged("another beginning", "a frame that begins with KVS1");
  KvChunk chunk{.layers = static_cast<int64_t>(get(stream, 4, 4)),
                .tokens = static_cast<int64_t>(get(stream, 8, 4)),
                .channels = static_cast<int64_t>(get(stream, 12, 4)),
                .keys = {},
                .values = {}};
  const uint64_t bytes = get(stream, 16, 8);
  if (bytes > stream.size() - kHeaderBytes) {
    damaged(fmt::format("{} bytes after the header", stream.size() - kHeaderBytes), fmt::format("{}", bytes));
  }
  const auto payload = stream.subspan(kHeaderBytes, bytes);
  if (checksum(stream.subspan(4, 20), payload) != get(stream, 24, 8)) damaged("another checksum", "the frame's own");
  const bool sane = chunk.layers > 0 && chunk.tokens > 0 && chunk.channels > 0 && chunk.channels % 16 == 0 &&
                    chunk.layers <= kMostElements / chunk.tokens &&
                    chunk.layers * chunk.tokens <= kMostElements / chunk.channels;
  if (!sane) {
    damaged(fmt::format("{} layers, {} tokens, {} channels", chunk.layers, chunk.tokens, chunk.channels),
            "sizes of a cache");
  }
  const int64_t least = coder.least_bytes(chunk);
  if (static_cast<int64_t>(payload.size()) < least) {
    damaged(fmt::format("{} bytes for {} layers, {} tokens, {} channels", payload.size(), chunk.layers, chunk.tokens,
                        chunk.channels),
            fmt::format("at least {}", least));
  }
  chunk.resize();
  coder.decode(payload, chunk);
  stream = stream.subspan(kHeaderBytes + bytes);
  return chunk;
}

std::vector<uint8_t> StreamCodecMethod::encode(std::span<LayerContext> layers) const {
  const auto coder = part_->coder(layers[0].model);
  const Coded tokens = coded(layers[0].cache.tail().entries(0));
  std::vector<uint8_t> stream;
  for (int64_t t = tokens.begin; t < tokens.end; t += part_->chunk_tokens()) {
    const int64_t stop = std::min(tokens.end, t + part_->chunk_tokens());
    KvChunk chunk = gather(layers, t, stop);
    if (part_->before_rotation()) rotate_keys(chunk, layers, layers[0].cache.tail().position(0, t), /*back=*/true);
    const std::vector<uint8_t> frame = write_frame(*coder, chunk);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  return stream;
}

void StreamCodecMethod::decode(std::span<const uint8_t> stream, std::span<LayerContext> layers,
                               int64_t position) const {
  const auto coder = part_->coder(layers[0].model);
  const LayerShape& shape = layers[0].cache.shape();
  const auto count = static_cast<int64_t>(layers.size());
  while (!stream.empty()) {
    KvChunk chunk = read_frame(*coder, stream);
    if (chunk.layers != count || chunk.channels != shape.kv_heads * shape.head_dim) {
      damaged(fmt::format("{} layers of {} channels", chunk.layers, chunk.channels),
              fmt::format("{} layers of {}", count, shape.kv_heads * shape.head_dim));
    }
    if (part_->before_rotation()) rotate_keys(chunk, layers, position, /*back=*/false);
    append(chunk, layers, position);
    position += chunk.tokens;
  }
}

void StreamCodecMethod::compress_all(std::span<LayerContext> layers,
                                     std::span<const LayerObservations> /*seen*/) const {
  if (layers.empty()) return;
  const EntrySegment& tail = layers[0].cache.tail();
  const int64_t n = tail.entries(0);
  const Coded tokens = coded(n);
  if (tokens.begin >= tokens.end) return;
  const int64_t first = tail.position(0, tokens.begin);
  const std::vector<uint8_t> stream = encode(layers);
  std::optional<KvChunk> recent;
  if (tokens.end < n) recent = gather(layers, tokens.end, n);
  for (const LayerContext& layer : layers) {
    layer.cache.tail().truncate(tokens.begin);
    layer.activity.entries_packed += (tokens.end - tokens.begin) * layer.cache.shape().kv_heads;
  }
  decode(stream, layers, first);
  if (recent) append(*recent, layers, first + tokens.end - tokens.begin);
}

}  // namespace kvarena
