#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

#include "harness/cache/codec_side_data.h"
#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// The bounds beyond which lies a share of some numbers, half of it on each side.
struct Bounds {
  float low = 0, high = 0;
};
/// By torch.quantile: linear between neighbours of the sorted numbers; 0 of none. Moves the numbers around.
Bounds bounds(std::vector<float>& numbers, double beyond) {
  const auto n = std::ssize(numbers);
  if (n == 0) return {};
  const auto quantile = [&](double q, const auto& sort_around) {
    const double at = q * static_cast<double>(n - 1);
    const auto below = static_cast<int64_t>(at), above = std::min(below + 1, n - 1);
    sort_around(below, above);
    return numbers[below] + static_cast<float>(at - static_cast<double>(below)) * (numbers[above] - numbers[below]);
  };
  const float low = quantile(beyond / 2, [&](int64_t /*below*/, int64_t above) {
    std::partial_sort(numbers.begin(), numbers.begin() + above + 1, numbers.end());
  });
  const float high = quantile(1 - beyond / 2, [&](int64_t below, int64_t /*above*/) {
    std::partial_sort(numbers.rbegin(), numbers.rbegin() + (n - below), numbers.rend(), std::greater{});
  });
  return {low, high};
}

float as_f16(float x) { return kernels::f16_to_f32(kernels::f32_to_f16(x)); }

/// Centre and half range that map low .. high to [-1, 1], as f16 holds them.
struct Range {
  Range(float low, float high) : centre(as_f16((low + high) / 2)), radius(as_f16((high - low) / 2)) {
    if (radius == 0) radius = 1;
  }
  [[nodiscard]] float normalised(float x) const { return (x - centre) / radius; }
  float centre;
  float radius;
};

/// Bounds of each key channel beyond which a key is an outlier.
struct Thresholds {
  std::vector<float> low, high;  // [kv_heads * head_dim]
};

/// A token's values over all heads: its outliers are taken out, the rest normalised in place.
struct TokenValues {
  Range range;
  std::vector<SparseRows::Element> outliers;
};
TokenValues normalise_token(std::vector<float>& row, double outliers) {
  std::vector<float> numbers = row;
  const auto [low, high] = bounds(numbers, outliers);
  const auto middle = numbers.begin() + static_cast<int64_t>((numbers.size() - 1) / 2);
  std::ranges::nth_element(numbers, middle);
  const float median = *middle;
  TokenValues token{Range(0, 0), {}};
  for (size_t c = 0; c < row.size() && outliers > 0; ++c) {
    if (row[c] > low && row[c] < high) continue;
    token.outliers.push_back({static_cast<uint16_t>(c), row[c]});
    row[c] = median;
  }
  const auto [least, most] = std::ranges::minmax(row);
  token.range = Range(least, most);
  for (float& x : row) x = token.range.normalised(x);
  return token;
}

/// Exact outliers, ranges of key channels and of tokens' values, and the rotary rotation of a layer.
class NuqParts final : public StorableSideData {
 public:
  NuqParts(const RotaryKeys& rotary, double outliers, const Thresholds& keys, const LedgerPtr& ledger)
      : rotary_(rotary),
        outliers_(outliers),
        low_(keys.low.begin(), keys.low.end(), LedgerAllocator<float>(ledger)),
        high_(keys.high.begin(), keys.high.end(), LedgerAllocator<float>(ledger)),
        key_outliers_(ledger),
        value_outliers_(ledger),
        value_ranges_(LedgerAllocator<uint16_t>(ledger)) {}
  NuqParts(const NuqParts& from, const LedgerPtr& ledger)
      : rotary_(from.rotary_),
        outliers_(from.outliers_),
        low_(from.low_, LedgerAllocator<float>(ledger)),
        high_(from.high_, LedgerAllocator<float>(ledger)),
        key_outliers_(from.key_outliers_, ledger),
        value_outliers_(from.value_outliers_, ledger),
        value_ranges_(from.value_ranges_, LedgerAllocator<uint16_t>(ledger)) {}

  void prepare(int64_t /*first*/, EntryBlock& block) override {
    const int64_t d = block.head_dim;
    for (int64_t h = 0; h < block.kv_heads; ++h) rotary_.undo(block.key(h, 0), block.positions[h]);
    std::vector<float> row(static_cast<size_t>(block.kv_heads * d));
    const std::vector<Range> ranges = channel_ranges();
    for (int64_t i = 0; i < block.count; ++i) {
      std::vector<SparseRows::Element> elements;
      for (int64_t c = 0; c < block.kv_heads * d; ++c) {
        float& x = block.key(c / d, i)[c % d];
        const bool outlier = x < low_[c] || x > high_[c];
        if (outlier) elements.push_back({static_cast<uint16_t>(c), x});
        x = outlier ? 0.0F : ranges[c].normalised(x);
      }
      key_outliers_.append(elements);

      for (int64_t h = 0; h < block.kv_heads; ++h) std::copy_n(block.value(h, i), d, &row[h * d]);
      const TokenValues token = normalise_token(row, outliers_);
      value_outliers_.append(token.outliers);
      value_ranges_.push_back(kernels::f32_to_f16(token.range.centre));
      value_ranges_.push_back(kernels::f32_to_f16(token.range.radius));
      for (int64_t h = 0; h < block.kv_heads; ++h) std::copy_n(&row[h * d], d, block.value(h, i));
    }
    if (block.count == 1) return;
    key_outliers_.shrink();
    value_outliers_.shrink();
    value_ranges_.shrink_to_fit();
  }

  [[nodiscard]] DequantProgram dequant_program(const PositionReader& positions) const override {
    const auto channels = [this] {
      std::vector<kernels::RowScale> scales;
      for (const Range& range : channel_ranges()) scales.push_back({.factor = range.radius, .offset = range.centre});
      return scales;
    };
    const auto tokens = [this](int64_t first, int64_t count, std::vector<kernels::RowScale>& to) {
      for (int64_t i = first; i < first + count; ++i) {
        to.push_back({.factor = kernels::f16_to_f32(value_ranges_[2 * i + 1]),
                      .offset = kernels::f16_to_f32(value_ranges_[2 * i])});
      }
    };
    DequantProgram steps{
        .keys = in_order(ScaleChannels{.read = channels}, key_outliers_.dequant_op()),
        .values = in_order(ScaleEntries{.shared = true, .read = tokens}, value_outliers_.dequant_op())};
    rotary_.add_dequant_op(positions, steps.keys);
    return steps;
  }

  [[nodiscard]] int64_t bytes() const override {
    return key_outliers_.bytes() + value_outliers_.bytes() +
           static_cast<int64_t>(sizeof(uint16_t) * value_ranges_.capacity() +
                                sizeof(float) * (low_.capacity() + high_.capacity()));
  }
  [[nodiscard]] std::unique_ptr<CodecSideData> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<NuqParts>(*this, ledger);
  }
  void save(CacheWriter& to) const override {
    for (const auto* bound : {&low_, &high_}) to.put_all(std::span<const float>(*bound));
    for (const auto* rows : {&key_outliers_, &value_outliers_}) rows->save(to);
    to.put_all(std::span<const uint16_t>(value_ranges_));
  }
  void load(CacheReader& from, int64_t entries) override {
    for (auto* bound : {&low_, &high_}) from.get_all(std::span<float>(*bound));
    for (auto* rows : {&key_outliers_, &value_outliers_}) rows->load(from, entries, std::ssize(low_));
    from.get_vector(value_ranges_, static_cast<size_t>(2 * entries));
  }

 private:
  [[nodiscard]] std::vector<Range> channel_ranges() const {
    std::vector<Range> ranges;
    for (size_t c = 0; c < low_.size(); ++c) ranges.emplace_back(low_[c], high_[c]);
    return ranges;
  }

  RotaryKeys rotary_;
  double outliers_;
  LedgerVector<float> low_;   // [kv_heads * head_dim]
  LedgerVector<float> high_;  // likewise
  SparseRows key_outliers_;   // before rotation
  SparseRows value_outliers_;
  LedgerVector<uint16_t> value_ranges_;  // [entries, 2]: centre, radius, f16
};

/// Normalised inliers of one side, gathered in fine bins of [-1, 1].
class Histogram {
 public:
  void add(float x) {
    const auto bin = static_cast<size_t>(std::clamp((x + 1) / 2 * kBins, 0.0F, kBins - 1.0F));
    ++count_[bin];
    sum_[bin] += x;
  }
  /// Levels of least squared error: 50 rounds of k-means from evenly filled groups.
  [[nodiscard]] std::vector<float> levels(int64_t n) const {
    const double total = std::accumulate(count_.begin(), count_.end(), 0.0);
    std::vector<double> levels;
    double seen = 0;
    for (size_t bin = 0; bin < kBins; ++bin) {
      seen += count_[bin];
      while (static_cast<int64_t>(levels.size()) < n &&
             seen > total * (static_cast<double>(levels.size()) + 0.5) / static_cast<double>(n)) {
        levels.push_back(count_[bin] > 0 ? sum_[bin] / count_[bin] : 0.0);
      }
    }
    levels.resize(static_cast<size_t>(n), levels.empty() ? 0.0 : levels.back());
    for (int round = 0; round < 50; ++round) move_to_means(levels);
    std::ranges::sort(levels);
    return {levels.begin(), levels.end()};
  }
  /// Mean and deviation of f(bin centre).
  template <class F>
  [[nodiscard]] std::pair<double, double> moments(const F& f) const {
    double n = 1e-12;
    double sum = 0;
    double squares = 0;
    for (size_t bin = 0; bin < kBins; ++bin) {
      if (count_[bin] == 0) continue;
      const double x = f(sum_[bin] / count_[bin]);
      n += count_[bin];
      sum += count_[bin] * x;
      squares += count_[bin] * x * x;
    }
    return {sum / n, std::sqrt(std::max(0.0, squares / n - sum / n * (sum / n)))};
  }

 private:
  static constexpr size_t kBins = 4096;

  void move_to_means(std::vector<double>& levels) const {
    std::vector<double> count(levels.size());
    std::vector<double> sum(levels.size());
    size_t nearest = 0;
    for (size_t bin = 0; bin < kBins; ++bin) {
      if (count_[bin] == 0) continue;
      const double x = sum_[bin] / count_[bin];
      while (nearest + 1 < levels.size() && x > (levels[nearest] + levels[nearest + 1]) / 2) ++nearest;
      count[nearest] += count_[bin];
      sum[nearest] += sum_[bin];
    }
    for (size_t i = 0; i < levels.size(); ++i) {
      if (count[i] > 0) levels[i] = sum[i] / count[i];
    }
  }

  std::vector<double> count_ = std::vector<double>(kBins);
  std::vector<double> sum_ = std::vector<double>(kBins);
};

/// Quantiles of a normal variable at the middles of n equal probabilities, the outermost at -1 and 1.
std::vector<float> normal_float_levels(int64_t n) {
  std::vector<double> levels;
  for (int64_t i = 0; i < n; ++i) {
    const double p = (static_cast<double>(i) + 0.5) / static_cast<double>(n);
    double low = -10;
    double high = 10;
    for (int step = 0; step < 100; ++step) {
      const double middle = (low + high) / 2;
      (std::erfc(-middle / std::numbers::sqrt2) / 2 < p ? low : high) = middle;
    }
    levels.push_back(low);
  }
  std::vector<float> scaled;
  for (const double x : levels) scaled.push_back(static_cast<float>(x / levels.back()));
  return scaled;
}

/// Keys per channel before their rotary rotation, values per token over all heads; the largest numbers exactly.
///   Numbers beyond the outliers / 2 and 1 - outliers / 2 quantiles (of a key channel; of a token's values) are kept in
///   f16. The others are mapped to [-1, 1] by their channel's thresholds (keys) or their token's range (values) and
///   rounded to the nearest of 2^bits levels, which a layer's keys share, and its values: k-means centroids (nuq), even
///   steps (uniform) or quantiles of a normal variable (nf). qnorm shifts and stretches the levels so that mean and
///   deviation stay what they were.
/// The authors fit thresholds and levels offline, levels weighted by the loss's gradients. Here they are fitted on the
/// prompt's own keys and values, unweighted: no calibration text and no gradients. First tokens are kept exactly by
/// `sinks` (their attention-sink-aware recipes: 1 or 5); the cap of their deployment kernel is not imitated.
/// Hooper et al. 2024, arXiv:2401.18079, sections 3.1 to 3.5.
class KvQuant final : public Codec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(2).max(8).doc("bits of a code: 2, 3, 4, 5 or 8");
    p("outliers", outliers_).min(0).max(0.05).doc("share of numbers kept in f16, half at each end");
    p("codebook", codebook_).one_of({"nuq", "uniform", "nf"}).doc("where the levels lie");
    p("qnorm", qnorm_).doc("whether levels keep mean and deviation; advised at 2 bits");
  }

  void check(const std::string& place, std::vector<std::string>& problems) const override {
    check_bits(place, "bits", bits_, problems);
  }

  bool storable() const override { return true; }
  std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override {
    const LayerShape& shape = layer.cache.shape();
    const LedgerPtr& ledger = layer.cache.ledger();
    Histogram keys;
    Histogram values;
    const Thresholds thresholds = observe_keys(layer, keys);
    if (fitted()) observe_values(layer, values);
    const kernels::QuantFormat side{.bits = static_cast<int>(bits_),
                                    .group_size = shape.head_dim,
                                    .rule = kernels::QuantRule::none,
                                    .levels = kernels::Levels::codebook,
                                    .token_groups = true};
    QuantizedFormat format{.keys = side, .values = side, .key_levels = levels(keys), .value_levels = levels(values)};
    return std::make_unique<DequantizingSegment>(
        shape, format, std::make_unique<NuqParts>(rotary_keys(layer), outliers_, thresholds, ledger), ledger);
  }

 private:
  [[nodiscard]] bool fitted() const { return codebook_ == "nuq" || qnorm_; }

  [[nodiscard]] Thresholds observe_keys(const LayerContext& layer, Histogram& histogram) const {
    const LayerShape& shape = layer.cache.shape();
    const EntrySegment& tail = layer.cache.tail();
    const RotaryKeys rotary = rotary_keys(layer);
    const int64_t d = shape.head_dim;
    Thresholds thresholds;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const int64_t n = tail.entries(h);
      std::vector<float> keys(static_cast<size_t>(n * d));
      tail.read(h, keys.data(), nullptr);
      require_finite(keys, "key", h);
      rotary.undo(keys.data(), tail.positions(h));
      std::vector<float> channel(static_cast<size_t>(n));
      for (int64_t c = 0; c < d; ++c) {
        for (int64_t i = 0; i < n; ++i) channel[i] = keys[i * d + c];
        const auto [low, high] = bounds(channel, outliers_);
        thresholds.low.push_back(low);
        thresholds.high.push_back(high);
        const Range range(low, high);
        for (const float x : channel) {
          if (x >= low && x <= high) histogram.add(range.normalised(x));
        }
      }
    }
    return thresholds;
  }

  void observe_values(const LayerContext& layer, Histogram& histogram) const {
    const LayerShape& shape = layer.cache.shape();
    const EntrySegment& tail = layer.cache.tail();
    const int64_t d = shape.head_dim;
    const int64_t n = tail.entries(0);
    std::vector<std::vector<float>> heads;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      heads.emplace_back(static_cast<size_t>(n * d));
      tail.read(h, nullptr, heads.back().data());
      require_finite(heads.back(), "value", h);
    }
    std::vector<float> row(static_cast<size_t>(shape.kv_heads * d));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t h = 0; h < shape.kv_heads; ++h) std::copy_n(&heads[h][i * d], d, &row[h * d]);
      (void)normalise_token(row, outliers_);
      for (const float x : row) histogram.add(x);
    }
  }

  [[nodiscard]] std::vector<float> levels(const Histogram& histogram) const {
    const int64_t n = int64_t{1} << bits_;
    std::vector<float> result;
    if (codebook_ == "nuq") {
      result = histogram.levels(n);
    } else if (codebook_ == "nf") {
      result = normal_float_levels(n);
    } else {
      for (int64_t i = 0; i < n; ++i) result.push_back(-1 + 2 * static_cast<float>(i) / static_cast<float>(n - 1));
    }
    if (!qnorm_) return result;
    const auto [mean, deviation] = histogram.moments([](double x) { return x; });
    const auto [mean_after, deviation_after] = histogram.moments([&](double x) {
      return *std::ranges::min_element(result, {}, [&](float level) { return std::fabs(level - x); });
    });
    const double scale = deviation_after > 0 ? deviation / deviation_after : 1.0;
    for (float& level : result) level = static_cast<float>(level * scale + mean - mean_after * scale);
    return result;
  }

  int64_t bits_ = 4;
  double outliers_ = 0.01;
  std::string codebook_ = "nuq";
  bool qnorm_ = false;
};

KVARENA_CODEC(KvQuant, {.name = "kvquant",
                        .title = "KVQuant",
                        .summary = "Non-uniform levels for keys before RoPE and values, outliers exactly.",
                        .paper = "arXiv:2401.18079, section 3"});

}  // namespace
}  // namespace kvarena
