#include "harness/engine/session/packing.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "harness/cache/attend_plan.h"
#include "harness/cache/packed_segment.h"
#include "harness/core/error.h"
#include "harness/engine/session/acted_layers.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/method/codec.h"
#include "harness/method/stream_codec.h"

namespace kvarena {
namespace {

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Seconds of the fastest of `repeats` calls; prepare() comes before each and is not timed.
template <class Prepare, class Work>
double fastest(int64_t repeats, const Prepare& prepare, const Work& work) {
  double least = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < std::max<int64_t>(1, repeats); ++i) {
    prepare();
    least = std::min(least, seconds_of(work));
  }
  return least;
}

/// The attention of a token that is appended to a cache, in all layers.
class NextToken {
 public:
  explicit NextToken(const KvCache& cache) : cache_(cache.clone()) {
    for (LayerCache& layer : cache_.layers) {
      const LayerShape& shape = layer.shape();
      const auto width = static_cast<size_t>(shape.q_heads * shape.head_dim);
      for (size_t i = row_.size(); i < width; ++i) row_.push_back(static_cast<float>(i % 7) / 7 - 0.5F);
      layer.append(row_.data(), row_.data(), 1, shape.kv_heads * shape.head_dim, cache_.length);
    }
    out_ = sums_ = largest_ = row_;
  }
  void attend() {
    for (const LayerCache& layer : cache_.layers) {
      const LayerShape& shape = layer.shape();
      const LayerQueries queries{
          .q = row_.data(), .q_len = 1, .q_stride = shape.q_heads * shape.head_dim, .position = cache_.length};
      const kernels::AttentionState state{.out = out_.data(), .max = largest_.data(), .sum = sums_.data()};
      kernels::init_attention(state, 1, shape.q_heads, shape.head_dim, shape.sinks);
      kvarena::attend(layer.plan(queries), state);
    }
  }

 private:
  KvCache cache_;
  std::vector<float> row_;  // keys, values and queries: what is computed does not matter
  std::vector<float> out_, sums_, largest_;
};

/// The segments that codecs made, with the layer of each.
template <class F>
void for_each_packed(const KvCache& cache, const F& use) {
  for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
    for (const PackedSegment* packed : cache.layers[layer].packed()) use(layer, *packed);
  }
}

/// Keys and values of a head's entries.
struct HeadRows {
  std::vector<float> keys, values;  // [entries, head_dim]
  HeadRows(int64_t entries, int64_t head_dim) : keys(static_cast<size_t>(entries * head_dim)), values(keys.size()) {}
};

/// Decodes what codecs hold, head by head: use(layer, segment, head, rows).
template <class F>
void decode_packed(const KvCache& cache, const F& use) {
  for_each_packed(cache, [&](size_t layer, const PackedSegment& segment) {
    for (int64_t head = 0; head < segment.shape().kv_heads; ++head) {
      HeadRows rows(segment.entries(head), segment.shape().head_dim);
      segment.read(head, rows.keys.data(), rows.values.data());
      use(layer, segment, head, rows);
    }
  });
}

struct SquaredError {
  double error = 0;
  double energy = 0;
  void add(const float* decoded, const float* exact, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const double off = static_cast<double>(decoded[i]) - exact[i];
      error += off * off;
      energy += static_cast<double>(exact[i]) * exact[i];
    }
  }
  [[nodiscard]] double relative() const { return energy > 0 ? error / energy : 0; }
};

/// Compares decoded entries of a head with those of the full cache at the same positions.
class Comparison {
 public:
  explicit Comparison(const KvCache& full) : full_(&full) {}

  void add(size_t layer, int64_t head, const std::vector<int32_t>& positions, const HeadRows& decoded,
           int64_t packed_values) {
    const EntrySegment& tail = full_->layers[layer].tail();
    const int64_t d = tail.shape().head_dim;
    HeadRows exact(tail.entries(head), d);
    tail.read(head, exact.keys.data(), exact.values.data());
    for (size_t i = 0; i < positions.size(); ++i) {
      const int64_t row = positions[i] - tail.position(head, 0);
      const auto at = static_cast<int64_t>(i) * d;
      keys_.add(&decoded.keys[at], &exact.keys[row * d], d);
      if (static_cast<int64_t>(i) < packed_values) values_.add(&decoded.values[at], &exact.values[row * d], d);
    }
  }
  void write(Packing& packing) const {
    packing.key_error = keys_.relative();
    packing.value_error = values_.relative();
  }

 private:
  const KvCache* full_;
  SquaredError keys_, values_;
};

/// Measures segments that stay packed while they are attended to.
Packing measure_segments(const Prefill& prompt, const Method& method, int64_t repeats) {
  Packing packing;
  Activity activity;
  KvCache cache = prompt.cache.clone();
  packing.encode_seconds = fastest(
      repeats, [&] { cache = prompt.cache.clone(); }, [&] { compress_layers(method, cache, prompt, activity); });
  packing.size = packed_size(cache);
  if (packing.size.numbers == 0) {
    fail({.found = "a method that packs nothing of this prompt",
          .expected = "a codec, and a prompt longer than what it leaves as it is"});
  }
  packing.decode_seconds = fastest(
      repeats, [] {}, [&] { decode_packed(cache, [](size_t, const PackedSegment&, int64_t, const HeadRows&) {}); });
  Comparison comparison(prompt.cache);
  decode_packed(cache, [&](size_t layer, const PackedSegment& segment, int64_t head, const HeadRows& rows) {
    comparison.add(layer, head, segment.positions(head), rows, segment.entries(head) - segment.unpacked_values());
  });
  comparison.write(packing);
  NextToken packed(cache), full(prompt.cache);
  packing.attend_seconds = packing.full_attend_seconds = std::numeric_limits<double>::infinity();
  for (int64_t turn = 0; turn < 8 * repeats; ++turn) {
    packing.attend_seconds = std::min(packing.attend_seconds, seconds_of([&] { packed.attend(); }));
    packing.full_attend_seconds = std::min(packing.full_attend_seconds, seconds_of([&] { full.attend(); }));
  }
  return packing;
}

/// Measures a stream, which is decoded before anyone attends to it.
Packing measure_stream(const Transformer& model, const Prefill& prompt, const StreamCodecMethod& method,
                       int64_t repeats) {
  Packing packing;
  Activity activity;
  KvCache full = prompt.cache.clone();
  std::vector<LayerContext> from = contexts_of(full, prompt, activity);
  const StreamCodecMethod::Coded coded = method.coded(static_cast<int64_t>(prompt.tokens.size()));
  if (coded.begin >= coded.end) {
    fail({.found = "a prompt that the codec leaves as it is", .expected = "one that is longer"});
  }
  std::vector<uint8_t> stream;
  packing.encode_seconds = fastest(
      repeats, [] {}, [&] { stream = method.encode(from); });
  const LayerShape shape = full.layers.front().shape();
  packing.size = {.numbers = 2 * static_cast<int64_t>(full.layers.size()) * (coded.end - coded.begin) * shape.kv_heads *
                             shape.head_dim,
                  .bytes = static_cast<int64_t>(stream.size())};
  KvCache restored = model.make_cache();
  std::vector<LayerContext> to;
  packing.decode_seconds = fastest(
      repeats,
      [&] {
        restored = model.make_cache();
        to = contexts_of(restored, prompt, activity);
      },
      [&] { method.decode(stream, to, coded.begin); });
  Comparison comparison(prompt.cache);
  for (size_t layer = 0; layer < restored.layers.size(); ++layer) {
    const EntrySegment& tail = restored.layers[layer].tail();
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      HeadRows rows(tail.entries(head), shape.head_dim);
      tail.read(head, rows.keys.data(), rows.values.data());
      comparison.add(layer, head, tail.positions(head), rows, tail.entries(head));
    }
  }
  comparison.write(packing);
  return packing;
}

}  // namespace

bool is_codec(const Method& method) {
  return dynamic_cast<const CodecMethod*>(&method) != nullptr ||
         dynamic_cast<const StreamCodecMethod*>(&method) != nullptr;
}

PackedSize packed_size(const KvCache& cache) {
  PackedSize size;
  for_each_packed(cache, [&](size_t /*layer*/, const PackedSegment& segment) {
    const LayerShape& shape = segment.shape();
    const int64_t plain = segment.unpacked_values() * shape.head_dim;  // of each head
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      size.numbers += 2 * segment.entries(head) * shape.head_dim - plain;
    }
    size.simulated |= segment.simulated();
    size.bytes += segment.bytes() - shape.kv_heads * plain * kernels::size_of(shape.dtype);
  });
  return size;
}

Packing measure_packing(const Transformer& model, const Prefill& prompt, const Method& method, int64_t repeats) {
  if (const auto* stream = dynamic_cast<const StreamCodecMethod*>(&method)) {
    return measure_stream(model, prompt, *stream, repeats);
  }
  return measure_segments(prompt, method, repeats);
}

}  // namespace kvarena
