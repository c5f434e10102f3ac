#include "harness/engine/stored/stored_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cache/byte_stream.h"
#include "harness/core/error.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/method/codec.h"
#include "harness/method/stream_codec.h"

namespace kvarena {
namespace {

constexpr uint32_t kMagic = 0x3143564b;  // "KVC1"

/// Keys and values of entries first .. first+count-1 of a head, one after the other.
void put_rows(CacheWriter& to, const EntrySegment& tail, int64_t head, int64_t first, int64_t count) {
  const int64_t d = tail.shape().head_dim;
  std::vector<float> keys(static_cast<size_t>(count * d)), values(keys.size());
  tail.read_some(head, first, count, keys.data(), values.data(), d);
  to.put_numbers(keys, tail.shape().dtype);
  to.put_numbers(values, tail.shape().dtype);
}

/// Entries that follow each other: the position of the first, their number, rows of each head.
void put_dense(CacheWriter& to, const EntrySegment& tail, int64_t first, int64_t count) {
  to.put<int64_t>(count);
  to.put<int64_t>(count > 0 ? tail.position(0, first) : 0);
  for (int64_t head = 0; head < tail.shape().kv_heads && count > 0; ++head) put_rows(to, tail, head, first, count);
}

void get_dense(CacheReader& from, EntrySegment& tail) {
  const LayerShape& shape = tail.shape();
  const int64_t count = from.get_count(shape.entry_bytes());
  const auto position = from.get<int64_t>();
  const int64_t d = shape.head_dim, row = shape.kv_heads * d;
  std::vector<float> keys(static_cast<size_t>(count * row)), values(keys.size());
  std::vector<float> rows(static_cast<size_t>(count * d));
  for (int64_t head = 0; head < shape.kv_heads && count > 0; ++head) {
    for (std::vector<float>* side : {&keys, &values}) {
      from.get_numbers(rows, shape.dtype);
      for (int64_t i = 0; i < count; ++i) std::copy_n(&rows[i * d], d, &(*side)[i * row + head * d]);
    }
  }
  if (count > 0) tail.append(keys.data(), values.data(), count, row, position);
}

/// Entries of each head by themselves: their number, positions, rows.
void put_ragged(CacheWriter& to, const EntrySegment& tail) {
  for (int64_t head = 0; head < tail.shape().kv_heads; ++head) {
    const std::vector<int32_t> positions = tail.positions(head);
    to.put<int64_t>(static_cast<int64_t>(positions.size()));
    to.put_all(std::span<const int32_t>(positions));
    put_rows(to, tail, head, 0, static_cast<int64_t>(positions.size()));
  }
}

void get_ragged(CacheReader& from, EntrySegment& tail) {
  const LayerShape& shape = tail.shape();
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    const int64_t count = from.get_count(sizeof(int32_t) + shape.entry_bytes() / shape.kv_heads);
    std::vector<int32_t> positions;
    from.get_vector(positions, static_cast<size_t>(count));
    std::vector<float> keys(static_cast<size_t>(count * shape.head_dim)), values(keys.size());
    from.get_numbers(keys, shape.dtype);
    from.get_numbers(values, shape.dtype);
    tail.append_to_head(head, positions, keys.data(), values.data(), shape.head_dim);
  }
}

/// [front as it is][frames][rest as it is]
void put_stream(CacheWriter& to, const Prefill& prompt, const StreamCodecMethod& method) {
  KvCache cache = prompt.cache.clone();
  Activity activity;
  const auto n = static_cast<int64_t>(prompt.tokens.size());
  std::vector<LayerContext> layers = contexts_of(cache, n, prompt.model.get(), activity);
  const auto coded = method.coded(n);
  const bool any = coded.begin < coded.end;
  const int64_t begin = any ? coded.begin : n, end = any ? coded.end : n;
  for (const LayerContext& layer : layers) put_dense(to, layer.cache.tail(), 0, begin);
  const std::vector<uint8_t> stream = any ? method.encode(layers) : std::vector<uint8_t>{};
  to.put<int64_t>(static_cast<int64_t>(stream.size()));
  to.put_all(std::span<const uint8_t>(stream));
  for (const LayerContext& layer : layers) put_dense(to, layer.cache.tail(), end, n - end);
}

void get_stream(CacheReader& from, KvCache& cache, const ModelFacts& facts, const StreamCodecMethod& method) {
  Activity activity;
  std::vector<LayerContext> layers = contexts_of(cache, cache.length, &facts, activity);
  for (const LayerContext& layer : layers) get_dense(from, layer.cache.tail());
  const auto bytes = from.take(static_cast<size_t>(from.get_count(1)));
  const std::span<const uint8_t> stream(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (!stream.empty()) method.decode(stream, layers, cache.layers.front().tail().entries(0));
  for (const LayerContext& layer : layers) get_dense(from, layer.cache.tail());
}

/// Forms of a layer's segments at rest. The tail, which is the last, is dense or ragged.
enum class SegmentForm : uint8_t { dense_tail, ragged_tail, packed, dense, ragged };

bool is_tail(SegmentForm form) { return form == SegmentForm::dense_tail || form == SegmentForm::ragged_tail; }

void put_entries(CacheWriter& to, const EntrySegment& segment, bool tail) {
  if (segment.ragged()) {
    to.put(tail ? SegmentForm::ragged_tail : SegmentForm::ragged);
    put_ragged(to, segment);
  } else {
    to.put(tail ? SegmentForm::dense_tail : SegmentForm::dense);
    put_dense(to, segment, 0, segment.entries(0));
  }
}

[[noreturn]] void keeps_more() {
  fail({.place = "stored cache",
        .found = "a method that keeps more than entries",
        .expected = "entries alone, as they are or packed by a codec whose segments can be stored",
        .action = "take a method that drops entries once, or a codec that can be stored"});
}

void put_layer(CacheWriter& to, const LayerCache& layer) {
  if (layer.index != nullptr) keeps_more();
  for (const std::unique_ptr<Segment>& segment : layer.segments()) {
    if (const auto* entries = dynamic_cast<const EntrySegment*>(segment.get())) {
      if (entries->score_width() > 0) keeps_more();
      put_entries(to, *entries, entries == &layer.tail());
    } else if (const auto* packed = dynamic_cast<const Storable*>(segment.get())) {
      to.put(SegmentForm::packed);
      packed->save(to);
    } else {
      keeps_more();
    }
  }
}

void put_layers(CacheWriter& to, const KvCache& cache) {
  if (cache.index != nullptr) keeps_more();
  for (const LayerCache& layer : cache.layers) put_layer(to, layer);
}

void get_packed(CacheReader& from, const LayerContext& layer, const Codec* codec) {
  if (codec == nullptr) CacheReader::damaged("packed entries", "entries as they are");
  std::unique_ptr<PackedSegment> packed = codec->make_segment(layer);
  dynamic_cast<Storable&>(*packed).load(from);
  layer.cache.insert_packed(std::move(packed));
}

void get_layer(CacheReader& from, const LayerContext& layer, const Codec* codec) {
  SegmentForm form = SegmentForm::packed;
  do {
    form = from.get<SegmentForm>();
    if (form > SegmentForm::ragged) {
      CacheReader::damaged(fmt::format("a segment of form {}", static_cast<int>(form)), "0 to 4");
    }
    if (form == SegmentForm::packed) {
      get_packed(from, layer, codec);
      continue;
    }
    std::unique_ptr<EntrySegment> before;
    if (!is_tail(form)) before = std::make_unique<EntrySegment>(layer.cache.shape(), layer.cache.ledger());
    EntrySegment& to = before ? *before : layer.cache.tail();
    const bool dense = form == SegmentForm::dense_tail || form == SegmentForm::dense;
    dense ? get_dense(from, to) : get_ragged(from, to);
    if (before) layer.cache.insert_before_tail(std::move(before));
  } while (!is_tail(form));
}

void get_layers(CacheReader& from, KvCache& cache, const ModelFacts& facts, const Codec* codec) {
  Activity activity;
  for (const LayerContext& layer : contexts_of(cache, cache.length, &facts, activity)) get_layer(from, layer, codec);
}

/// The codec that packs what a method leaves, where a store can hold that; null for others.
const Codec* storable_codec(const Method* method) {
  const auto* packing = dynamic_cast<const CodecMethod*>(method);
  return packing != nullptr && packing->codec().storable() ? &packing->codec() : nullptr;
}

const StreamCodecMethod* stream_codec(const Method* method) { return dynamic_cast<const StreamCodecMethod*>(method); }

}  // namespace

std::string storing_problem(const Method& method) {
  const bool own_prompt = method.reuser() != nullptr || method.pruner() != nullptr || method.prompt_pass() > 0;
  const bool codec = stream_codec(&method) != nullptr || storable_codec(&method) != nullptr;
  if (codec || (method.only_compresses() && !own_prompt)) return "";
  return describe({.found = "a method whose caches cannot be stored",
                   .expected = "one that drops entries of the prompt once, a codec for caches at rest, or one whose "
                               "packed entries can be stored"});
}

std::vector<std::byte> store_cache(const Prefill& prompt, const Method* method) {
  if (method != nullptr) {
    if (const std::string problem = storing_problem(*method); !problem.empty()) throw UserError(problem);
  }
  CacheWriter to;
  to.put<uint32_t>(kMagic);
  to.put<uint32_t>(static_cast<uint32_t>(prompt.cache.layers.size()));
  to.put<int64_t>(static_cast<int64_t>(prompt.tokens.size()));
  if (const StreamCodecMethod* codec = stream_codec(method)) {
    put_stream(to, prompt, *codec);
  } else if (method == nullptr) {
    put_layers(to, prompt.cache);
  } else {
    Activity activity;
    put_layers(to, compress_prompt(prompt, *method, activity));
  }
  return to.take();
}

KvCache restore_cache(const Transformer& model, const ModelFacts& facts, const Method* method,
                      std::span<const std::byte> bytes) {
  CacheReader from(bytes);
  KvCache cache = model.make_cache();
  if (from.get<uint32_t>() != kMagic) CacheReader::damaged("another beginning", "a cache that begins with KVC1");
  const auto layers = from.get<uint32_t>();
  if (layers != cache.layers.size())
    CacheReader::damaged(fmt::format("{} layers", layers), fmt::format("{}", cache.layers.size()));
  cache.length = from.get<int64_t>();
  if (cache.length < 1 || cache.length > model.config().max_position) {
    CacheReader::damaged(fmt::format("{} tokens", cache.length), fmt::format("1 to {}", model.config().max_position));
  }
  cache.prompt_length = cache.length;
  if (const StreamCodecMethod* codec = stream_codec(method)) {
    get_stream(from, cache, facts, *codec);
  } else {
    get_layers(from, cache, facts, storable_codec(method));
  }
  if (!from.empty()) CacheReader::damaged("more bytes", "the end");
  return cache;
}

}  // namespace kvarena
