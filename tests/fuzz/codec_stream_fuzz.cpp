#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "harness/method/stream_codec.h"
#include "kernels/entropy/rans.h"
#include "tests/fuzz/fuzz.h"

namespace {

using kvarena::fuzz::Bytes;
using kvarena::fuzz::exactly;

/// Two bytes: symbols and steps; a byte a lane, of which its counts are made; the rest is a block.
void read_range_coder(Bytes data) {
  using namespace kvarena::kernels;
  if (data.size() < 2 + kRansLanes) return;
  const int64_t count = 1 + data[0];
  const int64_t steps = data[1];
  std::vector<uint32_t> counts(static_cast<size_t>(count * kRansLanes));
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = data[2 + i % kRansLanes] * static_cast<uint32_t>(i % 7);
  std::vector<int16_t> starts(static_cast<size_t>((count + 1) * kRansLanes));
  rans_starts(counts.data(), count, starts.data());
  const std::vector<uint8_t> block = exactly(data.subspan(2 + kRansLanes));
  std::vector<uint8_t> symbols(static_cast<size_t>(steps * kRansLanes));
  const bool whole =
      rans_decode(block.data(), static_cast<int64_t>(block.size()), steps, starts.data(), count, symbols.data());
  if (std::ranges::any_of(symbols, [&](uint8_t symbol) { return symbol >= count; })) __builtin_trap();
  if (!whole) return;
  std::vector<uint8_t> again(static_cast<size_t>(rans_bound(steps)));
  again.resize(static_cast<size_t>(rans_encode(symbols.data(), steps, starts.data(), again.data())));
  if (again != block) __builtin_trap();  // one text, one code
}

std::unique_ptr<kvarena::StreamCoder> coder_of(const nlohmann::json& spec) {
  const auto method = kvarena::make_method(spec, "fuzz");
  return dynamic_cast<const kvarena::StreamCodecMethod&>(*method).codec().coder(nullptr);
}

/// A byte says which coder; three give sizes; the rest is what a checksum would protect.
void read_chunk(Bytes data) {
  static const std::array<std::unique_ptr<kvarena::StreamCoder>, 3> coders = {
      coder_of({{"name", "cachegen"}, {"level", 1}}), coder_of({{"name", "cachegen"}, {"level", 2}}),
      coder_of({{"name", "cachegen"}, {"level", 3}, {"delta", "anchor10"}})};
  if (data.size() < 4) return;
  kvarena::KvChunk chunk{
      .layers = 1 + data[1] % 40, .tokens = 1 + data[2], .channels = 16 * (1 + data[3] % 4), .keys = {}, .values = {}};
  chunk.resize();
  coders[data[0] % coders.size()]->decode(exactly(data.subspan(4)), chunk);
  for (const float x : chunk.keys) {
    if (!(x - x == 0)) __builtin_trap();  // what is stored is finite
  }
}

/// Frames as they come from a file.
void read_frames(Bytes data) {
  static const auto coder = coder_of({{"name", "cachegen"}});
  const std::vector<uint8_t> bytes = exactly(data);
  std::span<const uint8_t> stream = bytes;
  while (!stream.empty()) (void)kvarena::read_frame(*coder, stream);
}

}  // namespace

/// The first byte says at which door the others arrive.
KVARENA_FUZZ(codec_stream, data) {
  if (data.empty()) return;
  const Bytes rest = data.subspan(1);
  switch (data[0] % 3) {
    case 0: return read_range_coder(rest);
    case 1: return read_chunk(rest);
    default: return read_frames(rest);
  }
}
