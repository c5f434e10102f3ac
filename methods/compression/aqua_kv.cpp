#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <numbers>
#include <numeric>

#include "harness/cache/coded_rows_segment.h"
#include "harness/cache/shared_front.h"
#include "harness/method/codec.h"
#include "harness/method/fitted_weights.h"
#include "harness/method/tensors.h"
#include "harness/method/unrotated_keys.h"
#include "kernels/hadamard/hadamard.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quantize/quantize.h"

namespace kvarena {
namespace {

/// Points of the plane that are spread as two normal numbers are, [count, 2]: lengths at even quantiles, each a golden
/// angle on from the one before.
at::Tensor normal_points(int64_t count) {
  const at::Tensor order = at::arange(count, at::kDouble) + 0.5;
  const at::Tensor length = (-2 * (1 - order / count).log()).sqrt(),
                   angle = order * std::numbers::pi * (3 - std::sqrt(5));
  return at::stack({length * angle.cos(), length * angle.sin()}, 1).to(at::kFloat);
}

/// 4^bits points by which pairs of normal numbers are coded with little squared error, [4^bits, 2]: Lloyd's algorithm.
/// At 2 bits its error is below that of the authors' grid, at 4 bits 6% above.
at::Tensor normal_grid(int64_t bits) {
  constexpr int64_t kPoints = 1 << 14, kRounds = 100;
  static std::mutex mutex;
  static std::map<int64_t, at::Tensor> made;
  const std::lock_guard lock(mutex);
  at::Tensor& grid = made[bits];
  if (grid.defined()) return grid;
  const at::Tensor x = normal_points(kPoints);
  grid = 0.9 * normal_points(int64_t{1} << (2 * bits));
  for (int64_t round = 0; round < kRounds; ++round) {
    const at::Tensor nearest = (2 * x.matmul(grid.t()) - grid.square().sum(1)).argmax(1);
    const at::Tensor counts = at::zeros({grid.size(0), 1}).index_add(0, nearest, at::ones({kPoints, 1}));
    const at::Tensor sums = at::zeros_like(grid).index_add(0, nearest, x);
    grid = at::where(counts > 0, sums / counts.clamp_min(1), grid);
  }
  return grid;
}

/// Codes of rows, a whole number of bytes a row, and the lengths of their groups of channels (f16).
struct CodedRows {
  explicit CodedRows(const LedgerPtr& ledger)
      : codes(LedgerAllocator<uint8_t>(ledger)), lengths(LedgerAllocator<uint16_t>(ledger)) {}
  CodedRows(const CodedRows& from, const LedgerPtr& ledger)
      : codes(from.codes.begin(), from.codes.end(), LedgerAllocator<uint8_t>(ledger)),
        lengths(from.lengths.begin(), from.lengths.end(), LedgerAllocator<uint16_t>(ledger)) {}

  [[nodiscard]] int64_t bytes() const {
    return static_cast<int64_t>(codes.capacity() + lengths.capacity() * sizeof(uint16_t));
  }

  LedgerVector<uint8_t> codes;
  LedgerVector<uint16_t> lengths;
};

/// HIGGS: groups of channels through the Hadamard matrix, divided by their length, pairs to the nearest point of a
/// grid.
class GridCoder {
 public:
  GridCoder(const at::Tensor& grid, int64_t width)
      : grid_(grid.const_data_ptr<float>(), grid.const_data_ptr<float>() + grid.numel()),
        width_(width),
        group_(std::min<int64_t>(1024, width & -width)),
        bits_(std::bit_width(static_cast<uint64_t>(grid.size(0))) - 1) {}

  /// Appends codes of rows [count, width].
  void append(const std::vector<float>& rows, CodedRows& to) const {
    const auto count = std::ssize(rows) / width_;
    if (to.codes.empty()) {
      to.codes.reserve(static_cast<size_t>(count * row_bytes()));
      to.lengths.reserve(static_cast<size_t>(count * groups()));
    }
    std::vector<float> turned = rows;
    kernels::hadamard(turned.data(), count * groups(), group_, group_);
    std::vector<uint8_t> codes(static_cast<size_t>(width_ / 2));
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t g = 0; g < groups(); ++g) {
        const float* const x = &turned[row * width_ + g * group_];
        const float length = std::sqrt(std::inner_product(x, x + group_, x, 0.0F));
        to.lengths.push_back(kernels::f32_to_f16(length));
        const float scale = length > 0 ? std::sqrt(static_cast<float>(group_)) / length : 0;
        for (int64_t i = 0; i < group_; i += 2) codes[(g * group_ + i) / 2] = nearest(scale * x[i], scale * x[i + 1]);
      }
      to.codes.resize(to.codes.size() + static_cast<size_t>(row_bytes()));
      kernels::pack_codes(codes.data(), width_ / 2, bits_, to.codes.data() + to.codes.size() - row_bytes());
    }
  }

  /// Adds what the codes of entries first .. first+count-1 stand for to rows [count, width].
  void add(const CodedRows& from, int64_t first, int64_t count, std::vector<float>& rows) const {
    std::vector<float> restored(static_cast<size_t>(width_));
    std::vector<uint8_t> codes(static_cast<size_t>(width_ / 2));
    for (int64_t row = 0; row < count; ++row) {
      kernels::unpack_codes(&from.codes[(first + row) * row_bytes()], width_ / 2, bits_, codes.data());
      for (int64_t g = 0; g < groups(); ++g) {
        const float length = kernels::f16_to_f32(from.lengths[(first + row) * groups() + g]);
        const float scale = length / std::sqrt(static_cast<float>(group_));
        for (int64_t i = g * group_; i < (g + 1) * group_; i += 2) {
          const float* const pair = &grid_[2 * codes[i / 2]];
          restored[i] = scale * pair[0];
          restored[i + 1] = scale * pair[1];
        }
      }
      kernels::hadamard(restored.data(), groups(), group_, group_);
      for (int64_t i = 0; i < width_; ++i) rows[row * width_ + i] += restored[i];
    }
  }

  [[nodiscard]] int64_t width() const { return width_; }
  void truncate(CodedRows& rows, int64_t entries) const {
    rows.codes.resize(static_cast<size_t>(entries * row_bytes()));
    rows.lengths.resize(static_cast<size_t>(entries * groups()));
  }

 private:
  [[nodiscard]] int64_t groups() const { return width_ / group_; }
  [[nodiscard]] int64_t row_bytes() const { return (width_ / 2 * bits_ + 7) / 8; }

  /// The point nearest to (x, y).
  [[nodiscard]] uint8_t nearest(float x, float y) const {
    size_t best = 0;
    float most = -std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < grid_.size(); i += 2) {
      const float u = grid_[i], v = grid_[i + 1], closeness = 2 * (x * u + y * v) - (u * u + v * v);
      if (closeness <= most) continue;
      most = closeness;
      best = i;
    }
    return static_cast<uint8_t>(best / 2);
  }

  std::vector<float> grid_;  // [points, 2]
  int64_t width_, group_;
  int bits_;  // of a pair
};

/// Predicts one side of a layer: W x + b.
class Predictor {
 public:
  explicit Predictor(const FittedTensor& both) : bias_(static_cast<size_t>(both.shape[0])) {
    const at::Tensor all = tensor_of(both);  // [width, inputs + 1]
    inputs_ = all.size(1) - 1;
    weight_ = kernels::pack_weights(all.narrow(1, 0, inputs_).contiguous().const_data_ptr<float>(), all.size(0),
                                    inputs_, kernels::DType::f32);
    for (int64_t i = 0; i < all.size(0); ++i) bias_[i] = all[i][inputs_].item<float>();
  }
  [[nodiscard]] std::vector<float> operator()(const std::vector<float>& x) const {
    const int64_t count = std::ssize(x) / inputs_, width = std::ssize(bias_);
    std::vector<float> y(static_cast<size_t>(count * width));
    kernels::matmul({.x = x.data(),
                     .m = count,
                     .x_stride = inputs_,
                     .w = &weight_,
                     .bias = bias_.data(),
                     .y = y.data(),
                     .y_stride = width});
    return y;
  }

 private:
  int64_t inputs_ = 0;
  kernels::PackedMatrix weight_;
  std::vector<float> bias_;
};

/// How a layer is coded: by the layer below, or by itself, without predictors.
struct Link {
  GridCoder coder;
  std::optional<Predictor> keys, values;
};

/// Codes of neighbouring layers, each the residual of what the layer below predicts. What a layer was restored to is at
/// hand for the next one, until the topmost was.
class Chain {
 public:
  explicit Chain(LedgerPtr ledger) : ledger_(std::move(ledger)) {}
  /// As MergedPair::copy_in().
  [[nodiscard]] std::shared_ptr<Chain> copy_in(const LedgerPtr& ledger) const {
    if (auto made = last_copy_.lock(); made && made->ledger_ == ledger) return made;
    auto copy = std::make_shared<Chain>(ledger);
    for (const Layer& layer : layers_)
      copy->layers_.push_back({layer.link, {layer.keys, ledger}, {layer.values, ledger}});
    last_copy_ = copy;
    return copy;
  }

  /// Adds a layer on top and returns its number.
  int64_t add(std::shared_ptr<const Link> link) {
    layers_.push_back({std::move(link), CodedRows(ledger_), CodedRows(ledger_)});
    return std::ssize(layers_) - 1;
  }
  /// The next entries of a layer, of which `first` are there; the layers below must have them.
  void append(int64_t layer, int64_t first, int64_t count, const EntryRows& exact) {
    (void)restore(layer, first, count, &exact);
  }
  /// Restored entries first .. first+count-1.
  [[nodiscard]] EntryRows rows(int64_t layer, int64_t first, int64_t count) {
    const bool known = known_.layer == layer && known_.first == first && known_.count == count;
    return known ? known_.rows : restore(layer, first, count, nullptr);
  }
  void truncate(int64_t layer, int64_t entries) {
    known_ = {};
    layers_[layer].link->coder.truncate(layers_[layer].keys, entries);
    layers_[layer].link->coder.truncate(layers_[layer].values, entries);
  }
  [[nodiscard]] int64_t bytes(int64_t layer) const {
    return layers_[layer].keys.bytes() + layers_[layer].values.bytes();
  }

 private:
  struct Layer {
    std::shared_ptr<const Link> link;
    CodedRows keys, values;
  };
  struct Known {
    int64_t layer = -1, first = 0, count = 0;
    EntryRows rows;
  };

  /// Restores a layer's entries, which are coded first where `exact` has them.
  EntryRows restore(int64_t at, int64_t first, int64_t count, const EntryRows* exact) {
    const EntryRows below = at > 0 ? rows(at - 1, first, count) : EntryRows();
    Layer& layer = layers_[at];
    const auto side = [&](const std::optional<Predictor>& predictor, const std::vector<float>& inputs,
                          const std::vector<float>* wanted, CodedRows& coded) {
      const GridCoder& coder = layer.link->coder;
      std::vector<float> made =
          predictor ? (*predictor)(inputs) : std::vector<float>(static_cast<size_t>(count * coder.width()));
      if (wanted != nullptr) {
        std::vector<float> residual(made.size());
        std::ranges::transform(*wanted, made, residual.begin(), std::minus());
        coder.append(residual, coded);
      }
      coder.add(coded, first, count, made);
      return made;
    };
    EntryRows made;
    made.keys = side(layer.link->keys, below.keys, exact ? &exact->keys : nullptr, layer.keys);
    std::vector<float> both;
    if (layer.link->values) both = beside(made.keys, below.values, count);
    made.values = side(layer.link->values, both, exact ? &exact->values : nullptr, layer.values);
    known_ = {};
    if (at + 1 < std::ssize(layers_) || exact != nullptr)
      known_ = {.layer = at, .first = first, .count = count, .rows = made};
    return made;
  }

  /// Rows a and rows b side by side.
  static std::vector<float> beside(const std::vector<float>& a, const std::vector<float>& b, int64_t count) {
    const int64_t width = std::ssize(a) / count;
    std::vector<float> both(a.size() + b.size());
    for (int64_t row = 0; row < count; ++row) {
      std::copy_n(&a[row * width], width, &both[2 * row * width]);
      std::copy_n(&b[row * width], width, &both[(2 * row + 1) * width]);
    }
    return both;
  }

  LedgerPtr ledger_;
  std::vector<Layer> layers_;
  Known known_;
  mutable std::weak_ptr<Chain> last_copy_;
};

/// A layer of a chain.
class ChainCodes final : public RowCodes {
 public:
  ChainCodes(std::shared_ptr<Chain> chain, int64_t layer) : chain_(std::move(chain)), layer_(layer) {}

  [[nodiscard]] const std::shared_ptr<Chain>& chain() const { return chain_; }

  void append(int64_t first, int64_t count, const EntryRows& exact) override {
    chain_->append(layer_, first, count, exact);
  }
  [[nodiscard]] EntryRows rows(int64_t count) const override { return chain_->rows(layer_, 0, count); }
  void truncate(int64_t entries) override { chain_->truncate(layer_, entries); }
  [[nodiscard]] int64_t bytes() const override { return chain_->bytes(layer_); }
  [[nodiscard]] std::unique_ptr<RowCodes> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<ChainCodes>(chain_->copy_in(ledger), layer_);
  }

 private:
  std::shared_ptr<Chain> chain_;
  int64_t layer_;
};

/// Predictors by least squares, layer by layer, from what the layers below come back as.
class PredictorFitter final : public Fitter {
 public:
  PredictorFitter(FittedRequest artifact, int64_t bits, int64_t first_bits)
      : artifact_(std::move(artifact)), bits_(bits), first_bits_(first_bits) {}

  FittedRequest artifact() const override { return artifact_; }
  Needs needs() const override { return {}; }
  int64_t sample_tokens() const override { return 1024; }
  bool joint() const override { return true; }

  FittedTensors collect(const LayerView& layer, const RandomStream& draws) const override {
    const at::Tensor rows = draw_rows(layer.n(), kRowsPerText, draws);
    const auto by_row = [&](const at::Tensor& x) { return x.index_select(1, rows).transpose(0, 1).flatten(1); };
    return {{"keys", weight_of(by_row(unrotated_keys(layer)))}, {"values", weight_of(by_row(layer.values()))}};
  }
  FittedTensors join(std::vector<FittedTensors> layers) const override {
    FittedTensors all;
    for (const char* side : {"keys", "values"}) {
      std::vector<at::Tensor> parts;
      for (const FittedTensors& layer : layers) parts.push_back(tensor_of(layer.at(side)));
      all[side] = weight_of(at::stack(parts, 1));  // [rows, layers, width]
    }
    return all;
  }

  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& /*draws*/) const override {
    const at::Tensor keys = joined(records, "keys"), values = joined(records, "values");
    FittedTensors solved;
    for (const int64_t bits : {bits_, first_bits_}) solved[fmt::format("grid.{}", bits)] = weight_of(normal_grid(bits));
    at::Tensor keys_below, values_below;  // as they come back
    for (int64_t layer = 0; layer < keys.size(1); ++layer) {
      const at::Tensor grid = normal_grid(layer == 0 ? first_bits_ : bits_);
      const auto side = [&](const char* name, const at::Tensor& inputs, const at::Tensor& exact) {
        if (layer == 0) return coded(exact, grid);
        const at::Tensor both = regression(inputs, exact);
        solved[fmt::format("{}.{}", name, layer)] = weight_of(both);
        const at::Tensor predicted = with_ones(inputs).matmul(both.t());
        return predicted + coded(exact - predicted, grid);
      };
      keys_below = side("keys", keys_below, keys.select(1, layer));
      values_below =
          side("values", layer == 0 ? at::Tensor() : at::cat({keys_below, values_below}, 1), values.select(1, layer));
    }
    return solved;
  }
  FittedTensors assemble(const std::vector<FittedTensors>& layers) const override { return layers.front(); }

 private:
  static constexpr int64_t kRowsPerText = 256;
  static constexpr double kDamping = 1e-3;  // of the mean square of the inputs

  static at::Tensor with_ones(const at::Tensor& x) { return at::cat({x, at::ones({x.size(0), 1})}, 1); }
  /// [outputs, inputs + 1], the constant last.
  static at::Tensor regression(const at::Tensor& inputs, const at::Tensor& wanted) {
    const at::Tensor x = with_ones(inputs).to(at::kDouble);
    at::Tensor squares = x.t().matmul(x);
    squares.diagonal().add_(kDamping * squares.diagonal().mean());
    return at::linalg_solve(squares, x.t().matmul(wanted.to(at::kDouble))).t().to(at::kFloat).contiguous();
  }
  /// Rows as they come back from codes.
  static at::Tensor coded(const at::Tensor& rows, const at::Tensor& grid) {
    const at::Tensor x = rows.contiguous();
    const GridCoder coder(grid, x.size(1));
    CodedRows codes(std::make_shared<MemoryLedger>());
    coder.append({x.const_data_ptr<float>(), x.const_data_ptr<float>() + x.numel()}, codes);
    std::vector<float> back(static_cast<size_t>(x.numel()));
    coder.add(codes, 0, x.size(0), back);
    return at::from_blob(back.data(), x.sizes()).clone();
  }

  FittedRequest artifact_;
  int64_t bits_, first_bits_;
};

/// Layers predict each other, and what they do not predict is quantised. Of a token let k_l and v_l be the keys (before
/// rotation) and values of layer l, all heads together, and k'_l, v'_l what they come back as; then
///   k'_l = A_l k'_{l-1} + a_l + Q(k_l - A_l k'_{l-1} - a_l),
/// and v'_l likewise from (k'_l, v'_{l-1}). A_l and a_l are found by ridge regression on calibration text, layer by
/// layer, from inputs that went through Q. Q is HIGGS: groups of channels (the largest power of two that divides them,
/// at most the authors' 1024) through the Hadamard matrix, divided by their length, pairs of numbers to the nearest of
/// 4^bits points. The first layer has no predictor and `first_bits`. The first 4 tokens stay in 16 bits, and later ones
/// until `buffer` of them have come; then all of them are coded. Predictors are the model's and not counted for a
/// request. A layer whose neighbour below the method does not act on is coded as a first one. Grids are computed here,
/// lengths are f16 where the authors' code has f32. Shutova, Malinovskii, Egiazarian, Kuznedelev, Mazur, Surkov,
/// Ermakov, Alistarh 2025, arXiv:2501.19392, section 3. Weights: `kvarena fit`.
class AquaKv final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(2).max(4).doc("of a number, lengths aside");
    p("first_bits", first_bits_).min(2).max(4).doc("of a number of the first layer");
    p("sinks", sinks_).min(0).doc("first entries that stay in 16 bits");
    p("buffer", buffer_).min(1).doc("entries that are coded together; fewer wait in 16 bits");
    p("weights", weights_).doc("file of fitted predictors; empty = the project's for the model");
  }
  std::unique_ptr<Fitter> fitter() const override {
    return std::make_unique<PredictorFitter>(artifact(), bits_, first_bits_);
  }
  HookAccess reach() const override { return HookAccess::rows; }

  void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> /*seen*/) const override {
    for (size_t i = 0; i < layers.size(); ++i) {
      const bool follows = i > 0 && layers[i - 1].layer + 1 == layers[i].layer;
      code(layers[i], follows ? &layers[i - 1].cache : nullptr);
    }
  }
  void after_append(LayerContext& layer) const override {
    const bool follows = layer.rank() > 0 && layer.request != nullptr &&
                         (layer.peers.empty() || layer.peers[layer.rank() - 1] + 1 == layer.layer);
    code(layer, follows ? &layer.request->layers[layer.layer - 1] : nullptr);
  }

 private:
  [[nodiscard]] FittedRequest artifact() const {
    return {.method = "aqua_kv", .variant = fmt::format("bits{}-first{}", bits_, first_bits_), .path = weights_};
  }

  /// Codes what waits in a layer's tail once it fills the buffer.
  void code(LayerContext& layer, const LayerCache* below) const {
    LayerCache& cache = layer.cache;
    const int64_t waiting = cache.tail().entries(0) - (cache.packed().empty() ? sinks_ : 0);
    if (waiting < buffer_) return;
    if (cache.packed().empty()) start(layer, below);
    cache.packed().front()->take(cache.tail(), waiting);
    layer.activity.entries_packed += waiting * cache.shape().kv_heads;
  }

  /// Puts an empty segment behind the first entries, on top of the chain of the layer below or at the foot of its own.
  void start(LayerContext& layer, const LayerCache* below) const {
    LayerCache& cache = layer.cache;
    const auto weights = fitted_weights(layer.model, artifact());
    const int64_t width = cache.shape().kv_heads * cache.shape().head_dim;
    const int64_t bits = below == nullptr ? first_bits_ : bits_;
    const auto link = std::make_shared<Link>(Link{
        .coder = GridCoder(tensor_of(weights->at(fmt::format("grid.{}", bits), {int64_t{1} << (2 * bits), 2})), width),
        .keys = std::nullopt,
        .values = std::nullopt});
    std::shared_ptr<Chain> chain;
    if (below == nullptr) {
      chain = std::make_shared<Chain>(cache.ledger());
    } else {
      link->keys.emplace(weights->at(fmt::format("keys.{}", layer.layer), {width, width + 1}));
      link->values.emplace(weights->at(fmt::format("values.{}", layer.layer), {width, 2 * width + 1}));
      const auto& segment = static_cast<const CodedRowsSegment&>(*below->packed().front());
      chain = static_cast<const ChainCodes&>(segment.codes()).chain();
    }
    if (sinks_ > 0) set_front_apart(cache, sinks_);
    auto codes = std::make_unique<ChainCodes>(chain, chain->add(link));
    cache.insert_packed(
        std::make_unique<CodedRowsSegment>(cache.shape(), std::move(codes), rotary_keys(layer), cache.ledger()));
  }

  int64_t bits_ = 2;
  int64_t first_bits_ = 4;
  int64_t sinks_ = 4;
  int64_t buffer_ = 128;
  std::string weights_;
};

KVARENA_METHOD(AquaKv, Family::compression,
               {.name = "aqua_kv",
                .title = "AQUA-KV",
                .summary = "Predicts each layer's keys and values from the layer below and quantises the rest.",
                .paper = "arXiv:2501.19392, section 3"});

}  // namespace
}  // namespace kvarena
