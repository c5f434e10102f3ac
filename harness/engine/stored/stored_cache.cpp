#include "harness/engine/stored/stored_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "harness/core/error.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/method/stream_codec.h"

namespace kvarena {
namespace {

constexpr uint32_t kMagic = 0x3143564b;  // "KVC1"

[[noreturn]] void damaged(const std::string& found, const std::string& expected) {
  fail({.place = "stored cache",
        .found = found,
        .expected = expected,
        .action = "it is of another model, or was cut; compute it anew"});
}

class Writer {
 public:
  template <typename T>
  void put(T x) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_all(std::span<const T>(&x, 1));
  }
  template <typename T>
  void put_all(std::span<const T> xs) {
    const auto bytes = std::as_bytes(xs);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  /// Numbers as the cache stores them.
  void put_numbers(std::span<const float> xs, DType dtype) {
    if (dtype == DType::f32) return put_all(xs);
    halves_.clear();
    for (const float x : xs) halves_.push_back(kernels::f32_to_half(x, dtype));
    put_all(std::span<const uint16_t>(halves_));
  }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
  std::vector<uint16_t> halves_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <typename T>
  T get() {
    T x;
    std::memcpy(&x, take(sizeof(T)).data(), sizeof(T));
    return x;
  }
  /// A count of things of which each takes at least `bytes_each`.
  int64_t get_count(int64_t bytes_each) {
    const auto count = get<int64_t>();
    const auto left = static_cast<int64_t>(left_.size());
    if (count < 0 || count > left / bytes_each) damaged(fmt::format("{} entries", count), "as many as there are bytes");
    return count;
  }
  std::span<const std::byte> take(size_t bytes) {
    if (bytes > left_.size()) damaged(fmt::format("{} bytes left", left_.size()), fmt::format("{} more", bytes));
    const auto taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }
  void get_numbers(std::vector<float>& xs, DType dtype) {
    const auto from = take(xs.size() * static_cast<size_t>(kernels::size_of(dtype)));
    if (from.empty()) return;
    numbers_.resize(from.size());  // aligned, as what lies behind a mark of one byte is not
    std::ranges::copy(from, numbers_.begin());
    for (size_t i = 0; i < xs.size(); ++i) {
      xs[i] = kernels::load_element(numbers_.data(), dtype, static_cast<int64_t>(i));
    }
  }
  [[nodiscard]] bool empty() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
  std::vector<std::byte> numbers_;
};

/// Keys and values of entries first .. first+count-1 of a head, one after the other.
void put_rows(Writer& to, const EntrySegment& tail, int64_t head, int64_t first, int64_t count) {
  const int64_t d = tail.shape().head_dim;
  std::vector<float> keys(static_cast<size_t>(count * d)), values(keys.size());
  tail.read_some(head, first, count, keys.data(), values.data(), d);
  to.put_numbers(keys, tail.shape().dtype);
  to.put_numbers(values, tail.shape().dtype);
}

/// Entries that follow each other: the position of the first, their number, rows of each head.
void put_dense(Writer& to, const EntrySegment& tail, int64_t first, int64_t count) {
  to.put<int64_t>(count);
  to.put<int64_t>(count > 0 ? tail.position(0, first) : 0);
  for (int64_t head = 0; head < tail.shape().kv_heads && count > 0; ++head) put_rows(to, tail, head, first, count);
}

void get_dense(Reader& from, EntrySegment& tail) {
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
void put_ragged(Writer& to, const EntrySegment& tail) {
  for (int64_t head = 0; head < tail.shape().kv_heads; ++head) {
    const std::vector<int32_t> positions = tail.positions(head);
    to.put<int64_t>(static_cast<int64_t>(positions.size()));
    to.put_all(std::span<const int32_t>(positions));
    put_rows(to, tail, head, 0, static_cast<int64_t>(positions.size()));
  }
}

void get_ragged(Reader& from, EntrySegment& tail) {
  const LayerShape& shape = tail.shape();
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    const int64_t count = from.get_count(sizeof(int32_t) + shape.entry_bytes() / shape.kv_heads);
    std::vector<int32_t> positions(static_cast<size_t>(count));
    const auto bytes = from.take(positions.size() * sizeof(int32_t));
    if (count > 0) std::memcpy(positions.data(), bytes.data(), bytes.size());
    std::vector<float> keys(static_cast<size_t>(count * shape.head_dim)), values(keys.size());
    from.get_numbers(keys, shape.dtype);
    from.get_numbers(values, shape.dtype);
    tail.append_to_head(head, positions, keys.data(), values.data(), shape.head_dim);
  }
}

/// [front as it is][frames][rest as it is]
void put_stream(Writer& to, const Prefill& prompt, const StreamCodecMethod& method) {
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

void get_stream(Reader& from, KvCache& cache, const ModelFacts& facts, const StreamCodecMethod& method) {
  Activity activity;
  std::vector<LayerContext> layers = contexts_of(cache, cache.length, &facts, activity);
  for (const LayerContext& layer : layers) get_dense(from, layer.cache.tail());
  const auto bytes = from.take(static_cast<size_t>(from.get_count(1)));
  const std::span<const uint8_t> stream(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (!stream.empty()) method.decode(stream, layers, cache.layers.front().tail().entries(0));
  for (const LayerContext& layer : layers) get_dense(from, layer.cache.tail());
}

/// Throws UserError unless a method left entries and nothing else.
void require_entries(const KvCache& cache) {
  const auto plain = [](const LayerCache& layer) {
    return layer.segments().size() == 1 && layer.index == nullptr && layer.tail().score_width() == 0;
  };
  if (cache.index == nullptr && std::ranges::all_of(cache.layers, plain)) return;
  fail({.place = "stored cache",
        .found = "a method that keeps more than entries",
        .expected = "entries alone",
        .action = "take a method that drops entries once, or a codec for caches at rest"});
}

void put_entries(Writer& to, const KvCache& cache) {
  require_entries(cache);
  for (const LayerCache& layer : cache.layers) {
    const bool ragged = layer.tail().ragged();
    to.put<uint8_t>(ragged ? 1 : 0);
    if (ragged) {
      put_ragged(to, layer.tail());
    } else {
      put_dense(to, layer.tail(), 0, layer.tail().entries(0));
    }
  }
}

void get_entries(Reader& from, KvCache& cache) {
  for (LayerCache& layer : cache.layers) {
    if (from.get<uint8_t>() == 1) {
      get_ragged(from, layer.tail());
    } else {
      get_dense(from, layer.tail());
    }
  }
}

const StreamCodecMethod* stream_codec(const Method* method) { return dynamic_cast<const StreamCodecMethod*>(method); }

}  // namespace

std::string storing_problem(const Method& method) {
  const bool own_prompt = method.reuser() != nullptr || method.pruner() != nullptr || method.prompt_pass() > 0;
  if (stream_codec(&method) != nullptr || (method.only_compresses() && !own_prompt)) return "";
  return describe({.found = "a method whose caches cannot be stored",
                   .expected = "one that drops entries of the prompt once, or a codec for caches at rest"});
}

std::vector<std::byte> store_cache(const Prefill& prompt, const Method* method) {
  if (method != nullptr) {
    if (const std::string problem = storing_problem(*method); !problem.empty()) throw UserError(problem);
  }
  Writer to;
  to.put<uint32_t>(kMagic);
  to.put<uint32_t>(static_cast<uint32_t>(prompt.cache.layers.size()));
  to.put<int64_t>(static_cast<int64_t>(prompt.tokens.size()));
  if (const StreamCodecMethod* codec = stream_codec(method)) {
    put_stream(to, prompt, *codec);
  } else if (method == nullptr) {
    put_entries(to, prompt.cache);
  } else {
    Activity activity;
    put_entries(to, compress_prompt(prompt, *method, activity));
  }
  return to.take();
}

KvCache restore_cache(const Transformer& model, const ModelFacts& facts, const Method* method,
                      std::span<const std::byte> bytes) {
  Reader from(bytes);
  KvCache cache = model.make_cache();
  if (from.get<uint32_t>() != kMagic) damaged("another beginning", "a cache that begins with KVC1");
  const auto layers = from.get<uint32_t>();
  if (layers != cache.layers.size()) damaged(fmt::format("{} layers", layers), fmt::format("{}", cache.layers.size()));
  cache.length = from.get<int64_t>();
  if (cache.length < 1 || cache.length > model.config().max_position) {
    damaged(fmt::format("{} tokens", cache.length), fmt::format("1 to {}", model.config().max_position));
  }
  cache.prompt_length = cache.length;
  if (const StreamCodecMethod* codec = stream_codec(method)) {
    get_stream(from, cache, facts, *codec);
  } else {
    get_entries(from, cache);
  }
  if (!from.empty()) damaged("more bytes", "the end");
  return cache;
}

}  // namespace kvarena
