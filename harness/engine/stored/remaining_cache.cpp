#include "harness/engine/stored/remaining_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "harness/cache/byte_stream.h"
#include "harness/core/error.h"

namespace kvarena {
namespace {

constexpr uint32_t kMagic = 0x3152564b;  // "KVR1"
constexpr int64_t kBlock = 16;           // entries that share an order
constexpr uint8_t kExact = 255;          // in place of an order: all distances are 0
constexpr int kOrders = 32;

class BitWriter {
 public:
  void put(uint64_t value, int bits) {
    for (int bit = bits - 1; bit >= 0; --bit) {
      if (free_ == 0) {
        bytes_.push_back(0);
        free_ = 8;
      }
      --free_;
      bytes_.back() = static_cast<uint8_t>(bytes_.back() | (value >> bit & 1) << free_);
    }
  }
  [[nodiscard]] const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
  int free_ = 0;  // bits of the last byte
};

class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t get(int bits) {
    uint64_t value = 0;
    for (int i = 0; i < bits; ++i, ++at_) {
      if (at_ / 8 >= bytes_.size()) CacheReader::damaged("codes that end too early", "one for each number");
      value = value << 1 | (std::to_integer<uint64_t>(bytes_[at_ / 8]) >> (7 - at_ % 8) & 1);
    }
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

/// Bits of a number in an order that follows the numbers', so that near numbers have near places.
uint32_t place_of(float x, DType dtype) {
  if (dtype == DType::f32) {
    const auto bits = std::bit_cast<uint32_t>(x);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
  }
  const uint32_t bits = kernels::f32_to_half(x, dtype);
  return bits >> 15 != 0 ? ~bits & 0xffffU : bits | 0x8000U;
}

float number_at(uint32_t place, DType dtype) {
  if (dtype == DType::f32) return std::bit_cast<float>(place >> 31 != 0 ? place & 0x7fffffffU : ~place);
  const uint32_t bits = place >> 15 != 0 ? place & 0x7fffU : ~place & 0xffffU;
  return kernels::half_to_f32(static_cast<uint16_t>(bits), dtype);
}

/// 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
uint64_t folded(int64_t distance) {
  return distance < 0 ? 2 * static_cast<uint64_t>(-distance) - 1 : 2 * static_cast<uint64_t>(distance);
}
int64_t unfolded(uint64_t code) {
  return code % 2 == 1 ? -static_cast<int64_t>(code / 2) - 1 : static_cast<int64_t>(code / 2);
}

int golomb_bits(uint64_t code, int order) {
  return 2 * static_cast<int>(std::bit_width((code >> order) + 1)) - 1 + order;
}

void put_golomb(BitWriter& to, uint64_t code, int order) {
  const uint64_t high = (code >> order) + 1;
  const auto width = static_cast<int>(std::bit_width(high));
  to.put(0, width - 1);
  to.put(high, width);
  to.put(code, order);
}

uint64_t get_golomb(BitReader& from, int order) {
  int width = 1;
  while (from.get(1) == 0) ++width;
  if (width > 33) CacheReader::damaged("a distance beyond the numbers", "a cache's own");
  const uint64_t high = uint64_t{1} << (width - 1) | from.get(width - 1);
  return (high - 1) << order | from.get(order);
}

/// A head's keys or values that both sides know, by position.
struct KnownRows {
  std::vector<int32_t> positions;   // ascending, of the prompt
  std::vector<float> keys, values;  // [positions, head_dim], as the compressed cache says
};

KnownRows known_rows(const LayerCache& layer, int64_t head, int64_t length) {
  const int64_t d = layer.shape().head_dim;
  struct Place {
    int32_t position;
    size_t row;
  };
  std::vector<Place> places;
  std::vector<float> keys, values;
  for (const auto& segment : layer.segments()) {
    const std::vector<int32_t> positions = segment->positions(head);
    for (size_t i = 0; i < positions.size(); ++i) {
      if (positions[i] < length) places.push_back({.position = positions[i], .row = keys.size() / d + i});
    }
    const size_t before = keys.size();
    keys.resize(before + positions.size() * static_cast<size_t>(d));
    values.resize(keys.size());
    segment->read(head, &keys[before], &values[before]);
  }
  std::ranges::stable_sort(places, {}, &Place::position);
  const auto repeated = std::ranges::unique(places, {}, &Place::position);
  places.erase(repeated.begin(), repeated.end());
  KnownRows known;
  for (const Place& place : places) {
    known.positions.push_back(place.position);
    const auto row = static_cast<int64_t>(place.row);
    known.keys.insert(known.keys.end(), keys.begin() + row * d, keys.begin() + (row + 1) * d);
    known.values.insert(known.values.end(), values.begin() + row * d, values.begin() + (row + 1) * d);
  }
  return known;
}

/// Distances of `exact` from `known`, in the order of the known rows: an order for each block, then codes.
void put_distances(CacheWriter& to, std::span<const float> exact, std::span<const float> known, int64_t head_dim,
                   DType dtype) {
  std::vector<uint8_t> orders;
  BitWriter codes;
  const auto block = static_cast<size_t>(kBlock * head_dim);
  for (size_t begin = 0; begin < known.size(); begin += block) {
    std::vector<uint64_t> distances;
    for (size_t i = begin; i < std::min(known.size(), begin + block); ++i) {
      distances.push_back(folded(int64_t{place_of(exact[i], dtype)} - int64_t{place_of(known[i], dtype)}));
    }
    if (std::ranges::all_of(distances, [](uint64_t distance) { return distance == 0; })) {
      orders.push_back(kExact);
      continue;
    }
    int best = 0;
    int64_t fewest = std::numeric_limits<int64_t>::max();
    for (int order = 0; order < kOrders; ++order) {
      int64_t bits = 0;
      for (const uint64_t distance : distances) bits += golomb_bits(distance, order);
      if (bits < fewest) {
        fewest = bits;
        best = order;
      }
    }
    orders.push_back(static_cast<uint8_t>(best));
    for (const uint64_t distance : distances) put_golomb(codes, distance, best);
  }
  to.put<uint32_t>(static_cast<uint32_t>(codes.bytes().size()));
  to.put_all(std::span<const uint8_t>(orders));
  to.put_all(std::span<const uint8_t>(codes.bytes()));
}

/// Turns known rows into the exact ones.
void get_distances(CacheReader& from, std::span<float> rows, int64_t head_dim, DType dtype) {
  const auto bytes = from.get<uint32_t>();
  const auto block = static_cast<size_t>(kBlock * head_dim);
  std::vector<uint8_t> orders;
  from.get_vector(orders, (rows.size() + block - 1) / block);
  BitReader codes(from.take(bytes));
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint8_t order = orders[i / block];
    if (order == kExact) {
      rows[i] = number_at(place_of(rows[i], dtype), dtype);
      continue;
    }
    if (order >= kOrders) CacheReader::damaged(fmt::format("codes of order {}", order), "at most 31");
    const int64_t place = place_of(rows[i], dtype) + unfolded(get_golomb(codes, order));
    rows[i] = number_at(static_cast<uint32_t>(place), dtype);
  }
}

/// Positions below `length` that are not known.
std::vector<int32_t> missing(const KnownRows& known, int64_t length) {
  std::vector<int32_t> positions;
  size_t next = 0;
  for (int32_t position = 0; position < length; ++position) {
    if (next < known.positions.size() && known.positions[next] == position) {
      ++next;
    } else {
      positions.push_back(position);
    }
  }
  return positions;
}

/// The rows of these positions, out of [length, head_dim].
std::vector<float> gathered(const std::vector<float>& rows, const std::vector<int32_t>& positions, int64_t d) {
  std::vector<float> some;
  for (const int32_t position : positions) some.insert(some.end(), &rows[position * d], &rows[position * d] + d);
  return some;
}

void scatter(const std::vector<float>& some, const std::vector<int32_t>& positions, int64_t d, float* to,
             int64_t stride) {
  for (size_t i = 0; i < positions.size(); ++i) {
    std::copy_n(&some[i * static_cast<size_t>(d)], d, &to[positions[i] * stride]);
  }
}

}  // namespace

std::vector<std::byte> remaining_bytes(const KvCache& full, const KvCache& left) {
  KVARENA_ASSERT(full.length == left.length, "caches of two prompts");
  CacheWriter to;
  to.put(kMagic);
  to.put<uint32_t>(static_cast<uint32_t>(full.layers.size()));
  to.put<int64_t>(full.length);
  for (size_t i = 0; i < full.layers.size(); ++i) {
    const EntrySegment& tail = full.layers[i].tail();
    const LayerShape& shape = tail.shape();
    const int64_t d = shape.head_dim;
    std::vector<float> keys(static_cast<size_t>(full.length * d)), values(keys.size());
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      tail.read(head, keys.data(), values.data());
      const KnownRows known = known_rows(left.layers[i], head, full.length);
      put_distances(to, gathered(keys, known.positions, d), known.keys, d, shape.dtype);
      put_distances(to, gathered(values, known.positions, d), known.values, d, shape.dtype);
      const std::vector<int32_t> positions = missing(known, full.length);
      to.put_numbers(gathered(keys, positions, d), shape.dtype);
      to.put_numbers(gathered(values, positions, d), shape.dtype);
    }
  }
  return to.take();
}

KvCache completed_cache(const KvCache& left, std::span<const std::byte> remaining) {
  CacheReader from(remaining);
  if (from.get<uint32_t>() != kMagic) CacheReader::damaged("another beginning", "what follows a cache: KVR1");
  const auto layers = from.get<uint32_t>();
  if (layers != left.layers.size()) {
    CacheReader::damaged(fmt::format("{} layers", layers), fmt::format("{}", left.layers.size()));
  }
  const auto length = from.get<int64_t>();
  if (length != left.prompt_length) {
    CacheReader::damaged(fmt::format("{} tokens", length), fmt::format("{}", left.prompt_length));
  }
  std::vector<LayerShape> shapes;
  for (const LayerCache& layer : left.layers) shapes.push_back(layer.shape());
  KvCache full(shapes);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const int64_t d = shapes[i].head_dim, row = shapes[i].kv_heads * d;
    std::vector<float> keys(static_cast<size_t>(length * row)), values(keys.size());
    for (int64_t head = 0; head < shapes[i].kv_heads; ++head) {
      KnownRows known = known_rows(left.layers[i], head, length);
      const std::vector<int32_t> positions = missing(known, length);
      std::vector<float> sent(positions.size() * static_cast<size_t>(d));
      for (auto [side, all] : {std::pair{&known.keys, &keys}, std::pair{&known.values, &values}}) {
        get_distances(from, *side, d, shapes[i].dtype);
        scatter(*side, known.positions, d, &(*all)[head * d], row);
      }
      for (std::vector<float>* all : {&keys, &values}) {
        from.get_numbers(sent, shapes[i].dtype);
        scatter(sent, positions, d, &(*all)[head * d], row);
      }
    }
    full.layers[i].tail().append(keys.data(), values.data(), length, row, 0);
  }
  if (!from.empty()) CacheReader::damaged("more bytes", "the end");
  full.length = full.prompt_length = length;
  return full;
}

}  // namespace kvarena
