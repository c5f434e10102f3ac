#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "harness/method/stream_bytes.h"
#include "harness/method/stream_codec.h"
#include "kernels/common/dtype.h"
#include "kernels/entropy/rans.h"

namespace kvarena {
namespace {

constexpr int64_t kLanes = kernels::kRansLanes;
constexpr int64_t kAnchorEvery = 10;
constexpr int64_t kAnchorBins = 256;
constexpr int64_t kMostTokens = 256;  // of a chunk: counts are bytes

/// Levels a side of a layer has. Few layers: all the finest.
int64_t bins_of(int64_t level, bool key, int64_t layer, int64_t layers) {
  if (level == 3 || layers < 10) return 32;
  if (level == 1) return layer < (key ? 20 : 2) ? 16 : 12;
  if (layers >= 80) return layer < (key ? 40 : 20) ? 32 : 16;
  return layer < (key ? 10 : 2) ? 32 : 16;
}

/// Symbols 0 .. 2c of a token, c = bins / 2 - 1, and the token's largest magnitude in f16.
uint16_t quantise(const float* x, int64_t channels, int64_t bins, uint8_t* symbols) {
  float largest = 0;
  for (int64_t i = 0; i < channels; ++i) largest = std::max(largest, std::fabs(x[i]));
  const uint16_t stored = kernels::f32_to_f16(std::min(largest, 65504.0F));
  const float m = stored == 0 ? 1.0F : kernels::f16_to_f32(stored);
  const auto c = static_cast<float>(bins / 2 - 1);
  for (int64_t i = 0; i < channels; ++i) {
    symbols[i] = static_cast<uint8_t>(std::clamp(std::nearbyint(x[i] * c / m), -c, c) + c);
  }
  return stored;
}

void dequantise(const uint8_t* symbols, int64_t channels, int64_t bins, uint16_t stored, float* x) {
  const float m = stored == 0 ? 1.0F : kernels::f16_to_f32(stored);
  const auto c = static_cast<float>(bins / 2 - 1);
  for (int64_t i = 0; i < channels; ++i) x[i] = (static_cast<float>(symbols[i]) - c) / c * m;
}

/// Sixteen channels of all tokens: how often each symbol occurs in each channel, then the coded symbols. A count fits a
/// byte: of at most 256 tokens no more than 255 share a symbol unless all do, and then it is not written.
void write_block(ByteWriter& out, const std::vector<uint8_t>& symbols, int64_t tokens, int64_t channels, int64_t base,
                 int64_t count) {
  std::vector<uint8_t> lanes(static_cast<size_t>(tokens * kLanes));
  std::vector<uint32_t> counts(static_cast<size_t>(count * kLanes));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < kLanes; ++i) {
      const uint8_t symbol = symbols[t * channels + base + i];
      lanes[t * kLanes + i] = symbol;
      ++counts[symbol * kLanes + i];
    }
  }
  for (int64_t i = 0; i < kLanes; ++i) {
    int64_t first = 0;
    int64_t last = count - 1;
    while (first < last && counts[first * kLanes + i] == 0) ++first;
    while (last > first && counts[last * kLanes + i] == 0) --last;
    out.u8(first);
    out.u8(last);
    for (int64_t s = first; s <= last && first < last; ++s) out.u8(counts[s * kLanes + i]);
  }
  std::vector<int16_t> starts(static_cast<size_t>((count + 1) * kLanes));
  kernels::rans_starts(counts.data(), count, starts.data());
  std::vector<uint8_t> coded(static_cast<size_t>(kernels::rans_bound(tokens)));
  coded.resize(static_cast<size_t>(kernels::rans_encode(lanes.data(), tokens, starts.data(), coded.data())));
  out.u32(static_cast<int64_t>(coded.size()));
  out.bytes.insert(out.bytes.end(), coded.begin(), coded.end());
}

void read_block(ByteReader& in, std::vector<uint8_t>& symbols, int64_t tokens, int64_t channels, int64_t base,
                int64_t count) {
  std::vector<uint32_t> counts(static_cast<size_t>(count * kLanes));
  for (int64_t i = 0; i < kLanes; ++i) {
    const int64_t first = in.u8();
    const int64_t last = in.u8();
    if (first > last || last >= count) in.wrong(fmt::format("symbols {} to {}", first, last), "a range below the bins");
    if (first == last) counts[first * kLanes + i] = 1;
    for (int64_t s = first; s <= last && first < last; ++s) counts[s * kLanes + i] = in.u8();
  }
  std::vector<int16_t> starts(static_cast<size_t>((count + 1) * kLanes));
  kernels::rans_starts(counts.data(), count, starts.data());
  const auto coded = in.take(in.u32());
  std::vector<uint8_t> lanes(static_cast<size_t>(tokens * kLanes));
  if (!kernels::rans_decode(coded.data(), static_cast<int64_t>(coded.size()), tokens, starts.data(), count,
                            lanes.data())) {
    in.wrong("a block that does not end where its symbols end", "what the encoder wrote");
  }
  for (int64_t t = 0; t < tokens; ++t) std::copy_n(&lanes[t * kLanes], kLanes, &symbols[t * channels + base]);
}

class CacheGenCoder final : public StreamCoder {
 public:
  CacheGenCoder(int64_t level, bool anchored) : level_(level), anchored_(anchored) {}

  std::vector<uint8_t> encode(const KvChunk& chunk) const override {
    ByteWriter out;
    for (int64_t layer = 0; layer < chunk.layers; ++layer) {
      for (const bool key : {true, false}) write_side(out, chunk, layer, key);
    }
    return std::move(out.bytes);
  }

  void decode(std::span<const uint8_t> bytes, KvChunk& chunk) const override {
    ByteReader in(bytes, "cachegen");
    for (int64_t layer = 0; layer < chunk.layers; ++layer) {
      for (const bool key : {true, false}) read_side(in, chunk, layer, key);
    }
    in.expect_end();
  }

  int64_t least_bytes(const KvChunk& sizes) const override {
    if (sizes.tokens > kMostTokens) {
      fail({.place = "cachegen stream",
            .found = fmt::format("{} tokens", sizes.tokens),
            .expected = fmt::format("at most {} a chunk", kMostTokens)});
    }
    const int64_t anchors = anchored_ ? (sizes.tokens + kAnchorEvery - 1) / kAnchorEvery : 0;
    const int64_t blocks = anchors < sizes.tokens ? sizes.channels / kLanes : 0;
    constexpr int64_t kLeastBlock = 2 * kLanes + 4 + kernels::rans_bound(0);
    return 2 * sizes.layers * (2 * sizes.tokens + anchors * sizes.channels + blocks * kLeastBlock);
  }

 private:
  [[nodiscard]] bool is_anchor(int64_t token) const { return anchored_ && token % kAnchorEvery == 0; }

  void write_side(ByteWriter& out, const KvChunk& chunk, int64_t layer, bool key) const {
    const int64_t bins = bins_of(level_, key, layer, chunk.layers);
    const int64_t channels = chunk.channels;
    std::vector<uint8_t> symbols(static_cast<size_t>(chunk.tokens * channels));
    std::vector<uint8_t> anchor_symbols(static_cast<size_t>(channels));
    std::vector<float> anchor(static_cast<size_t>(channels));
    std::vector<float> row(static_cast<size_t>(channels));
    int64_t coded = 0;
    for (int64_t t = 0; t < chunk.tokens; ++t) {
      const float* x = chunk.row(key, layer, t);
      if (is_anchor(t)) {
        const uint16_t m = quantise(x, channels, kAnchorBins, anchor_symbols.data());
        out.u16(m);
        out.bytes.insert(out.bytes.end(), anchor_symbols.begin(), anchor_symbols.end());
        dequantise(anchor_symbols.data(), channels, kAnchorBins, m, anchor.data());
        continue;
      }
      for (int64_t c = 0; c < channels; ++c) row[c] = x[c] - anchor[c];
      out.u16(quantise(row.data(), channels, bins, &symbols[coded++ * channels]));
    }
    for (int64_t base = 0; base < channels && coded > 0; base += kLanes) {
      write_block(out, symbols, coded, channels, base, bins - 1);
    }
  }

  void read_side(ByteReader& in, KvChunk& chunk, int64_t layer, bool key) const {
    const int64_t bins = bins_of(level_, key, layer, chunk.layers);
    const int64_t channels = chunk.channels;
    std::vector<uint16_t> largest(static_cast<size_t>(chunk.tokens));
    int64_t coded = 0;
    for (int64_t t = 0; t < chunk.tokens; ++t) {
      largest[t] = in.u16();
      if ((largest[t] & 0x7c00U) == 0x7c00U) in.wrong("a token's maximum that is not finite", "a number");
      if (!is_anchor(t)) ++coded;
      if (!is_anchor(t)) continue;
      const auto anchor = in.take(channels);
      dequantise(anchor.data(), channels, kAnchorBins, largest[t], chunk.row(key, layer, t));
    }
    std::vector<uint8_t> symbols(static_cast<size_t>(coded * channels));
    for (int64_t base = 0; base < channels && coded > 0; base += kLanes) {
      read_block(in, symbols, coded, channels, base, bins - 1);
    }
    const uint8_t* next = symbols.data();
    for (int64_t t = 0; t < chunk.tokens; ++t) {
      if (is_anchor(t)) continue;
      float* x = chunk.row(key, layer, t);
      dequantise(next, channels, bins, largest[t], x);
      next += channels;
      if (!anchored_) continue;
      const float* anchor = chunk.row(key, layer, t / kAnchorEvery * kAnchorEvery);
      for (int64_t c = 0; c < channels; ++c) x[c] += anchor[c];
    }
  }

  int64_t level_;
  bool anchored_;
};

/// Cache chunks for the network, quantised per token and coded per channel.  Of each layer, side and token
///   m = max |x|,  c = bins / 2 - 1,  code = round(c x / m) + c,  decoded (code - c) / c m,
/// m in f16, more bins for early layers (`level` 1 coarse, 2 the released default, 3 fine). Codes of a channel are
/// coded with the channel's own frequencies over the chunk. delta "anchor10": the first of every 10 tokens is stored in
/// 8 bits, the others as differences to it (the paper's reading; the released code, and the default here, has no
/// deltas). The released arithmetic coder is replaced by sixteen interleaved range coders with 12-bit frequencies,
/// which decode side by side; frequencies travel as counts. Liu et al. 2024, arXiv:2310.07240, section 5.
class CacheGen final : public StreamCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("level", level_).min(1).max(3).doc("quality: which table of bins");
    p("chunk", chunk_).min(1).max(kMostTokens).doc("tokens that share frequencies");
    p("delta", delta_).one_of({"none", "anchor10"}).doc("what is quantised: numbers or differences to an anchor token");
  }
  int64_t chunk_tokens() const override { return chunk_; }
  std::unique_ptr<StreamCoder> coder(const ModelFacts* /*model*/) const override {
    return std::make_unique<CacheGenCoder>(level_, delta_ == "anchor10");
  }

 private:
  int64_t level_ = 2;
  int64_t chunk_ = 256;
  std::string delta_ = "none";
};

KVARENA_STREAM(CacheGen, {.name = "cachegen",
                          .title = "CacheGen",
                          .summary = "Quantises per token and entropy-codes per channel for storage and links.",
                          .paper = "arXiv:2310.07240, section 5"});

}  // namespace
}  // namespace kvarena
