#include "harness/engine/stored/stored_cache.h"

#include <fmt/format.h>

#include "harness/cache/byte_stream.h"
#include "harness/cache/shared_front.h"
#include "harness/core/error.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/stored/saved_entries.h"
#include "harness/method/codec.h"
#include "harness/method/stream_codec.h"
#include "harness/model/pass_checks.h"

namespace kvarena {
namespace {

constexpr uint32_t kMagic = 0x3243564b;  // "KVC2"

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

void get_dense_tails(CacheReader& from, std::span<const LayerContext> layers) {
  std::vector<FoundEntries> found;
  for (const LayerContext& layer : layers) found.push_back(find_dense(from, layer.cache.tail()));
  take_in(found);
}

void get_stream(CacheReader& from, KvCache& cache, const ModelFacts& facts, const StreamCodecMethod& method) {
  Activity activity;
  std::vector<LayerContext> layers = contexts_of(cache, cache.length, &facts, activity);
  get_dense_tails(from, layers);
  const auto bytes = from.take(static_cast<size_t>(from.get_count(1)));
  const std::span<const uint8_t> stream(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (!stream.empty()) method.decode(stream, layers, cache.layers.front().tail().entries(0));
  get_dense_tails(from, layers);
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

CacheWriter begun(const KvCache& cache, int64_t tokens) {
  CacheWriter to;
  to.put<uint32_t>(kMagic);
  to.put<uint32_t>(static_cast<uint32_t>(cache.layers.size()));
  to.put<int64_t>(tokens);
  return to;
}

std::vector<std::byte> stored_layers(const KvCache& cache, int64_t tokens) {
  CacheWriter to = begun(cache, tokens);
  put_layers(to, cache);
  return to.take();
}

void get_packed(CacheReader& from, const LayerContext& layer, const Codec* codec) {
  if (codec == nullptr) CacheReader::damaged("packed entries", "entries as they are");
  std::unique_ptr<PackedSegment> packed = codec->make_segment(layer);
  dynamic_cast<Storable&>(*packed).load(from);
  layer.cache.insert_packed(std::move(packed));
}

/// Reads a layer's packed segments and makes the others, whose entries are found and not yet copied.
void get_layer(CacheReader& from, const LayerContext& layer, const Codec* codec, std::vector<FoundEntries>& found) {
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
    found.push_back(dense ? find_dense(from, to) : find_ragged(from, to));
    if (before) layer.cache.insert_before_tail(std::move(before));
  } while (!is_tail(form));
}

void get_layers(CacheReader& from, KvCache& cache, const ModelFacts& facts, const Codec* codec) {
  Activity activity;
  std::vector<FoundEntries> found;
  for (const LayerContext& layer : contexts_of(cache, cache.length, &facts, activity)) {
    get_layer(from, layer, codec, found);
  }
  take_in(found);
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

Prefill prefill_to_store(Transformer& model, std::span<const int32_t> prompt, const Method* method,
                         std::shared_ptr<const ModelFacts> facts) {
  if (prompt.size() < 2) {
    fail({.place = "prompt of a stored cache",
          .found = fmt::format("{} tokens", prompt.size()),
          .expected = "at least two: the last one is the request's own"});
  }
  require_entries(model.config(), "prompt of a stored cache", "a cache at rest");
  Prefill known = prefill(model, prompt.first(prompt.size() - 1), method == nullptr ? Needs{} : method->needs(),
                          kPrefillChunk, std::move(facts));
  const auto n = static_cast<int64_t>(prompt.size());
  if (const int64_t window = known.model->rotation_window; window > 0 && n > window) {
    fail({.place = "prompt of a stored cache",
          .found = fmt::format("{} tokens under a rope scaling that turns keys by the prompt's length", n),
          .expected = fmt::format("at most {}, the original window", window)});
  }
  return known;
}

std::vector<std::byte> store_cache(const Prefill& prompt, const Method* method, bool divided) {
  if (method != nullptr) {
    if (const std::string problem = storing_problem(*method); !problem.empty()) throw UserError(problem);
  }
  if (const StreamCodecMethod* codec = stream_codec(method)) {
    CacheWriter to = begun(prompt.cache, std::ssize(prompt.tokens));
    put_stream(to, prompt, *codec);
    return to.take();
  }
  if (method == nullptr && !divided) return stored_layers(prompt.cache, std::ssize(prompt.tokens));
  Activity activity;
  KvCache left = method == nullptr ? prompt.cache.clone() : compress_prompt(prompt, *method, activity);
  if (divided) share_front(left);
  return stored_layers(left, std::ssize(prompt.tokens));
}

std::vector<std::byte> store_again(const KvCache& cache) { return stored_layers(cache, cache.length); }

bool stores_stream(const Method* method) { return stream_codec(method) != nullptr; }

KvCache restore_cache(const Transformer& model, const ModelFacts& facts, const Method* method,
                      std::span<const std::byte> bytes) {
  CacheReader from(bytes);
  KvCache cache = model.make_cache();
  if (from.get<uint32_t>() != kMagic) CacheReader::damaged("another beginning", "a cache that begins with KVC2");
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

void count_beside(const KvCache& cache, int64_t bytes) {
  cache.ledger->add_own(Tier::device, bytes);
  cache.ledger->add_own(Tier::device, -bytes);
}

}  // namespace kvarena
