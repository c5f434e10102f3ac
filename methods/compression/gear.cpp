#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "harness/cache/codec_side_data.h"
#include "harness/core/random.h"
#include "harness/method/codec.h"

namespace kvarena {
namespace {

struct Settings {
  double sparsity = 0.02;
  int64_t rank_prefill = 4;
  int64_t rank_decode = 2;
  int64_t loops = 3;
};

/// Rank-r factors of one side of one head of a block: residual ~ A B, A [count, r], B [r, head_dim], f16.
struct Factors {
  Factors(const LedgerPtr& ledger, int64_t count, int64_t rank, int64_t d)
      : a(static_cast<size_t>(count * rank), LedgerAllocator<uint16_t>(ledger)),
        b(static_cast<size_t>(rank * d), LedgerAllocator<uint16_t>(ledger)) {}
  Factors(const Factors& from, const LedgerPtr& ledger)
      : a(from.a, LedgerAllocator<uint16_t>(ledger)), b(from.b, LedgerAllocator<uint16_t>(ledger)) {}
  LedgerVector<uint16_t> a;
  LedgerVector<uint16_t> b;
};

struct Block {
  int64_t first, count, rank;
  std::vector<Factors> keys;    // [kv_heads]
  std::vector<Factors> values;  // [kv_heads]
};

double in_double(float x, float y) { return static_cast<double>(x) * y; }

/// Rows of x [rank, n] made orthonormal in order; a row without anything left becomes 0.
void orthonormalise(std::vector<float>& x, int64_t n, int64_t rank) {
  for (int64_t k = 0; k < rank; ++k) {
    float* const row = &x[k * n];
    for (const float* before = x.data(); before < row; before += n) {
      const auto dot = static_cast<float>(std::inner_product(row, row + n, before, 0.0, std::plus{}, in_double));
      for (int64_t i = 0; i < n; ++i) row[i] -= dot * before[i];
    }
    const double squares = std::inner_product(row, row + n, row, 0.0, std::plus{}, in_double);
    const float factor = squares > 1e-20 ? static_cast<float>(1 / std::sqrt(squares)) : 0.0F;
    for (int64_t i = 0; i < n; ++i) row[i] *= factor;
  }
}

/// x [rows, columns] in the other order, and back; some rows at a time, which lie in the nearest cache.
std::vector<float> transposed(const float* x, int64_t rows, int64_t columns) {
  constexpr int64_t kRows = 16;
  std::vector<float> result(static_cast<size_t>(rows * columns));
  for (int64_t first = 0; first < rows; first += kRows) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = first; r < std::min(rows, first + kRows); ++r) result[c * rows + r] = x[r * columns + c];
    }
  }
  return result;
}

/// to [rank, columns] = from [rank, rows] times x [rows, columns], sums over rows ascending.
void multiply(const std::vector<float>& from, const float* x, int64_t rows, int64_t columns, std::vector<float>& to) {
  std::ranges::fill(to, 0.0F);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < std::ssize(to) / columns; ++k) {
      const float by = from[k * rows + r];
      for (int64_t c = 0; c < columns; ++c) to[k * columns + c] += x[r * columns + c] * by;
    }
  }
}

/// Power iteration on residual [count, d]: p = R q, q = R^t p, orthonormal in the last loop; R ~ p q^t.
void factorise(const float* residual, int64_t count, int64_t d, int64_t rank, int64_t loops, Factors& out) {
  const RandomStream stream(0, "gear start");
  const std::vector<float> across = transposed(residual, count, d);
  std::vector<float> q(static_cast<size_t>(rank * d));
  std::vector<float> p(static_cast<size_t>(rank * count));
  for (int64_t c = 0; c < d; ++c) {
    for (int64_t k = 0; k < rank; ++k) q[k * d + c] = static_cast<float>(2 * stream.uniform(c * rank + k) - 1);
  }
  for (int64_t loop = 0; loop < loops; ++loop) {
    orthonormalise(q, d, rank);  // the authors do so in the last loop only; it keeps the numbers' size, not their span
    multiply(q, across.data(), d, count, p);
    orthonormalise(p, count, rank);
    multiply(p, residual, count, d, q);
  }
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t k = 0; k < rank; ++k) out.a[t * rank + k] = kernels::f32_to_f16(p[k * count + t]);
  }
  std::ranges::transform(q, out.b.begin(), kernels::f32_to_f16);
}

/// Outliers and low-rank factors of a layer.
class GearParts final : public CodecSideData {
 public:
  GearParts(const Settings& settings, const LedgerPtr& ledger)
      : settings_(settings), ledger_(ledger), key_outliers_(ledger), value_outliers_(ledger) {}
  GearParts(const GearParts& from, const LedgerPtr& ledger)
      : settings_(from.settings_),
        ledger_(ledger),
        key_outliers_(from.key_outliers_, ledger),
        value_outliers_(from.value_outliers_, ledger) {
    for (const Block& block : from.blocks_) {
      Block copy{block.first, block.count, block.rank, {}, {}};
      for (const Factors& factors : block.keys) copy.keys.emplace_back(factors, ledger);
      for (const Factors& factors : block.values) copy.values.emplace_back(factors, ledger);
      blocks_.push_back(std::move(copy));
    }
  }

  void prepare(int64_t /*first*/, EntryBlock& block) override {
    const int64_t d = block.head_dim;
    std::vector<std::vector<SparseRows::Element>> found(static_cast<size_t>(block.count));
    for (int64_t h = 0; h < block.kv_heads; ++h) {  // keys: along each channel
      std::vector<float> channels = transposed(block.key(h, 0), block.count, d);
      for (int64_t c = 0; c < d; ++c) {
        const auto outliers = take_out(&channels[c * block.count], block.count);
        for (const auto& [i, x] : outliers) found[i].push_back({static_cast<uint16_t>(h * d + c), x});
      }
      std::ranges::copy(transposed(channels.data(), d, block.count), block.key(h, 0));
    }
    for (const auto& elements : found) key_outliers_.append(elements);
    std::vector<float> row(static_cast<size_t>(block.kv_heads * d));
    for (int64_t i = 0; i < block.count; ++i) {  // values: along each token, all heads
      for (int64_t h = 0; h < block.kv_heads; ++h) std::copy_n(block.value(h, i), d, &row[h * d]);
      std::vector<SparseRows::Element> elements;
      for (const auto& [c, x] : take_out(row.data(), block.kv_heads * d)) {
        elements.push_back({static_cast<uint16_t>(c), x});
      }
      value_outliers_.append(elements);
      for (int64_t h = 0; h < block.kv_heads; ++h) std::copy_n(&row[h * d], d, block.value(h, i));
    }
    key_outliers_.shrink();
    value_outliers_.shrink();
  }

  void complete(int64_t first, const EntryBlock& prepared, const std::function<EntryBlock()>& decode) override {
    const int64_t rank = first == 0 ? settings_.rank_prefill : settings_.rank_decode;
    if (rank == 0) return;
    const EntryBlock decoded = decode();
    const int64_t n = prepared.count * prepared.head_dim;
    Block block{first, prepared.count, rank, {}, {}};
    std::vector<float> residual(static_cast<size_t>(n));
    for (int64_t h = 0; h < prepared.kv_heads; ++h) {
      const auto add = [&](const std::vector<float>& want, const std::vector<float>& have, std::vector<Factors>& side) {
        for (int64_t i = 0; i < n; ++i) residual[i] = want[h * n + i] - have[h * n + i];
        side.emplace_back(ledger_, prepared.count, rank, prepared.head_dim);
        factorise(residual.data(), prepared.count, prepared.head_dim, rank, settings_.loops, side.back());
      };
      add(prepared.keys, decoded.keys, block.keys);
      add(prepared.values, decoded.values, block.values);
    }
    blocks_.push_back(std::move(block));
  }

  [[nodiscard]] DequantProgram dequant_program(const PositionReader& /*positions*/) const override {
    const auto products = [this](std::vector<Factors> Block::*side) {
      return AddProducts{.read = [this, side](int64_t first, int64_t count, std::vector<AddProducts::Block>& to) {
        for (const Block& block : blocks_) {
          if (block.first < first + count && block.first + block.count > first)
            to.push_back(product(block, block.*side));
        }
      }};
    };
    return {.keys = in_order(products(&Block::keys), key_outliers_.dequant_op()),
            .values = in_order(products(&Block::values), value_outliers_.dequant_op())};
  }

  [[nodiscard]] int64_t bytes() const override {
    int64_t total = key_outliers_.bytes() + value_outliers_.bytes();
    for (const Block& block : blocks_) {
      for (const auto* side : {&block.keys, &block.values}) {
        for (const Factors& f : *side) total += static_cast<int64_t>(2 * (f.a.capacity() + f.b.capacity()));
      }
    }
    return total;
  }
  [[nodiscard]] std::unique_ptr<CodecSideData> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<GearParts>(*this, ledger);
  }

 private:
  /// The largest and smallest numbers of a vector with their places; they become the mean of all.
  [[nodiscard]] std::vector<std::pair<int64_t, float>> take_out(float* x, int64_t n) const {
    const auto each = static_cast<int64_t>(static_cast<double>(n) * settings_.sparsity / 2);
    if (each == 0) return {};
    std::vector<std::pair<float, int32_t>> order;  // equal numbers by their places
    order.reserve(static_cast<size_t>(n));
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      order.emplace_back(x[i], static_cast<int32_t>(i));
      sum += x[i];
    }
    const auto low = order.begin() + each, high = order.end() - each;
    std::partial_sort(order.begin(), low, order.end());
    std::partial_sort(order.rbegin(), order.rbegin() + each, std::make_reverse_iterator(low), std::greater{});
    std::vector<std::pair<int64_t, float>> taken;
    for (const auto& [first, last] : {std::pair{order.begin(), low}, std::pair{high, order.end()}}) {
      for (auto at = first; at < last; ++at) {
        taken.emplace_back(at->second, at->first);
        x[at->second] = static_cast<float>(sum / static_cast<double>(n));
      }
    }
    return taken;
  }

  static AddProducts::Block product(const Block& block, const std::vector<Factors>& side) {
    AddProducts::Block step{.first = block.first, .count = block.count, .rank = block.rank, .a = {}, .b = {}};
    for (const Factors& head : side) {
      step.a.emplace_back(head.a);
      step.b.emplace_back(head.b);
    }
    return step;
  }

  Settings settings_;
  LedgerPtr ledger_;
  SparseRows key_outliers_;
  SparseRows value_outliers_;
  std::vector<Block> blocks_;
};

/// Quantised, plus a low-rank and a sparse correction of what quantising loses:  X ~ Q(X - S) + A B + S.
/// S holds the sparsity / 2 largest and smallest numbers of each key channel and of each token's values, exactly (f16),
/// replaced by the vector's mean before Q. Q is KIVI's quantiser, keys per channel and values per token. A B is a
/// rank-rank_prefill approximation of the prompt's residual in each head by power iteration (rank_decode in each later
/// block). The newest entries wait in 16 bits until `buffer` of them make a block. GEAR-L is sparsity 0.
/// The authors take the count of outliers of a key channel from the length of a token's row; here from the channel's.
/// Kang et al. 2024, arXiv:2403.05527, section 3.
class Gear final : public Codec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(1).max(8).doc("bits of the backbone: 1, 2, 3, 4, 5 or 8");
    p("group_size", group_size_).min(16).doc("elements that share a scale; for values at most a head");
    p("buffer", buffer_).min(16).doc("newest entries in 16 bits, compressed in blocks of this many");
    p("sparsity", settings_.sparsity).min(0).max(0.5).doc("share of outliers kept exactly");
    p("rank_prefill", settings_.rank_prefill).min(0).max(32).doc("rank of the correction of the prompt");
    p("rank_decode", settings_.rank_decode).min(0).max(32).doc("rank of the correction of later blocks");
    p("loops", settings_.loops).min(1).max(20).doc("power iterations");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    check_bits(place, "bits", bits_, problems);
    if (group_size_ % 16 != 0) problems.push_back(place + ".group_size: expected a multiple of 16");
    if (buffer_ % group_size_ != 0) problems.push_back(place + ".buffer: expected a multiple of group_size");
  }
  std::string check_layer(const LayerContext& layer) const override {
    const int64_t d = layer.cache.shape().head_dim;
    return group_size_problem(std::min(group_size_, d), d);
  }
  std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override {
    const LayerShape& shape = layer.cache.shape();
    const kernels::QuantFormat keys{
        .bits = static_cast<int>(bits_), .group_size = group_size_, .meta = meta_type(shape)};
    kernels::QuantFormat values = keys;
    values.group_size = std::min(group_size_, shape.head_dim);
    return std::make_unique<DequantizingSegment>(shape, QuantizedFormat{.keys = keys, .values = values},
                                                 std::make_unique<GearParts>(settings_, layer.cache.ledger()),
                                                 layer.cache.ledger());
  }
  int64_t key_block() const override { return buffer_; }

 private:
  int64_t bits_ = 4;
  int64_t group_size_ = 64;
  int64_t buffer_ = 64;
  Settings settings_;
};

KVARENA_CODEC(Gear, {.name = "gear",
                     .title = "GEAR",
                     .summary = "Quantises and corrects the error by a low-rank and a sparse part.",
                     .paper = "arXiv:2403.05527, section 3"});

}  // namespace
}  // namespace kvarena
