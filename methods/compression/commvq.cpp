#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "harness/cache/coded_rows_segment.h"
#include "harness/core/error.h"
#include "harness/method/codec.h"
#include "harness/method/fitted_weights.h"
#include "harness/method/tensors.h"
#include "harness/method/unrotated_keys.h"
#include "kernels/quantize/quantize.h"

namespace kvarena {
namespace {

constexpr double kTiny = 1e-6;  // beside what is divided by

/// Vectors [n, head_dim] a quarter turn on: channels c and c + head_dim / 2 become -(c + head_dim / 2) and c. Rotary
/// rotations commute with it.
at::Tensor quarter_turn(const at::Tensor& x) {
  const std::vector<at::Tensor> half = x.chunk(2, -1);
  return at::cat({-half[1], half[0]}, -1);
}

/// A codebook of centres p_A + J p_B for all pairs of its points p [points, head_dim], J a quarter turn.
class TurnedPoints {
 public:
  explicit TurnedPoints(const at::Tensor& points) : points_(points.contiguous()), turned_(quarter_turn(points)) {
    if (points.scalar_type() == at::kFloat) {
      point_numbers_ = points_.const_data_ptr<float>();
      turned_numbers_ = turned_.const_data_ptr<float>();
    }
    const at::Tensor sizes = points.square().sum(1);
    squares_ = sizes.unsqueeze(1) + sizes.unsqueeze(0) + 2 * points.matmul(turned_.t());  // [points, points]
  }
  /// Squared distances of vectors [n, head_dim] to the centres, [n, points * points].
  [[nodiscard]] at::Tensor distances(const at::Tensor& x) const {
    const at::Tensor near = x.matmul(points_.t()).unsqueeze(2) + x.matmul(turned_.t()).unsqueeze(1);
    return (x.square().sum(1).view({-1, 1, 1}) + squares_ - 2 * near).clamp_min(0).flatten(1);
  }
  /// Centres of codes A * points + B.
  [[nodiscard]] at::Tensor centres(const at::Tensor& codes) const {
    const at::Tensor a = codes.div(points_.size(0), "floor");
    return points_.index_select(0, a) + turned_.index_select(0, codes - a * points_.size(0));
  }
  /// Adds the centre of a code to a vector [head_dim] of floats, which the points are too.
  void add(int64_t code, float* to) const {
    const int64_t d = points_.size(1);
    const float* const point = point_numbers_ + code / points_.size(0) * d;
    const float* const turned = turned_numbers_ + code % points_.size(0) * d;
    for (int64_t c = 0; c < d; ++c) to[c] += point[c] + turned[c];
  }

 private:
  at::Tensor points_, turned_, squares_;
  const float* point_numbers_ = nullptr;  // of the tensors, where they are floats
  const float* turned_numbers_ = nullptr;
};

/// Fits the points of codebooks, each to what those before it leave of vectors [n, head_dim], by soft assignments that
/// harden (expectation and maximisation). `sizes` [n, 1] are the vectors' lengths in the error that is lowered.
class PointFitter {
 public:
  PointFitter(int64_t points, const at::Tensor& sizes) : points_(points), sizes_(sizes) {
    // Rows 2 (A * points + B) and the next: x of a centre is x_A - y_B, y is x_B + y_A, of pairs (x, y) of channels.
    const int64_t centres = points * points;
    pairs_ = at::zeros({2 * centres, 2 * points}, at::kDouble);
    for (int64_t a = 0; a < points; ++a) {
      for (int64_t b = 0; b < points; ++b) {
        const int64_t row = 2 * (a * points + b);
        pairs_[row][2 * a] += 1;
        pairs_[row][2 * b + 1] -= 1;
        pairs_[row + 1][2 * b] += 1;
        pairs_[row + 1][2 * a + 1] += 1;
      }
    }
  }

  /// Points [codebooks, points, head_dim], and the error after each codebook.
  struct Found {
    at::Tensor points, errors;
  };
  [[nodiscard]] Found fit(at::Tensor x, int64_t codebooks, const RandomStream& draws, uint64_t first) const {
    std::vector<at::Tensor> found;
    std::vector<double> errors;
    double cooler = 1;
    for (int64_t i = 0; i < codebooks; ++i) {
      found.push_back(fit_one(x, cooler, draws, first + static_cast<uint64_t>(i) * points_ * points_));
      const TurnedPoints book(found.back());
      x = x - book.centres(book.distances(x).argmin(1));
      errors.push_back((x * sizes_).square().mean().item<double>());
      if (i % 4 == 0) cooler /= 10;
    }
    return {.points = at::stack(found), .errors = at::tensor(errors)};
  }

 private:
  static constexpr int64_t kSteps = 100;

  [[nodiscard]] at::Tensor fit_one(const at::Tensor& x, double cooler, const RandomStream& draws,
                                   uint64_t first) const {
    std::vector<int64_t> start(static_cast<size_t>(points_ * points_));
    for (size_t i = 0; i < start.size(); ++i)
      start[i] = static_cast<int64_t>(draws.below(static_cast<uint64_t>(x.size(0)), first + i));
    at::Tensor points = best_points(x, (-at::cdist(x, x.index_select(0, at::tensor(start)))).softmax(1)), best;
    double least = std::numeric_limits<double>::infinity();
    for (int64_t step = 0; step < kSteps; ++step) {
      const double temperature = 1e-3 * cooler * std::pow(1e-2, static_cast<double>(step) / (kSteps - 1));
      const TurnedPoints book(points);
      const at::Tensor distances = book.distances(x);
      const at::Tensor left = x - book.centres(distances.argmin(1));
      const double error = (left * sizes_).square().mean().item<double>();
      if (error < least) {
        least = error;
        best = points;
      } else if (error - least < 1e-5) {
        break;
      }
      points = best_points(x, (distances.sqrt() / -temperature).softmax(1));
    }
    return best;
  }

  /// Points whose centres are nearest to the vectors that are assigned to them, by least squares.
  [[nodiscard]] at::Tensor best_points(const at::Tensor& x, const at::Tensor& assigned) const {
    const int64_t half = x.size(1) / 2;
    const at::Tensor counts = assigned.sum(0).to(at::kDouble) + 1e-8;
    const at::Tensor means = assigned.t().matmul(x).to(at::kDouble) / counts.unsqueeze(1);
    const at::Tensor weights = counts.repeat_interleave(2).unsqueeze(1);
    const at::Tensor wanted = means.reshape({-1, 2, half}).flatten(0, 1);  // [2 centres, head_dim / 2]
    const at::Tensor weighted = (pairs_ * weights).t();
    const at::Tensor solved = at::linalg_solve(weighted.matmul(pairs_), weighted.matmul(wanted));
    return solved.reshape({points_, 2 * half}).to(at::kFloat);
  }

  int64_t points_;
  at::Tensor sizes_, pairs_;
};

/// The value side's network and codebook: a vector scaled, normalised and read by two linear layers gives a choice
/// among four for every two bits (the first, the second, both, none); what comes back is the sum of the rows of bits
/// that are set, at the vector's length.
class ValueCoder {
 public:
  static constexpr std::array kNames = {"norm1.weight", "norm1.bias", "enc1.weight", "enc1.bias",
                                        "out.weight",   "out.bias",   "embedding"};

  ValueCoder(at::Tensor scale, std::vector<at::Tensor> parameters)
      : scale_(std::move(scale)), parameters_(std::move(parameters)) {}
  /// Before training, as layers of this kind begin.
  ValueCoder(const at::Tensor& scale, int64_t bits, const RandomStream& draws) : scale_(scale) {
    const int64_t width = scale.size(0), choices = width * bits / 2 * 4, inner = std::min<int64_t>(4096, choices);
    const double in = 1 / std::sqrt(static_cast<double>(width)), out = 1 / std::sqrt(static_cast<double>(inner));
    const int64_t first = int64_t{1} << 32;
    parameters_ = {at::ones({width}),
                   at::zeros({width}),
                   draw_uniform({inner, width}, in, draws, first),
                   at::zeros({inner}),
                   draw_uniform({choices, inner}, out, draws, 2 * first),
                   at::zeros({choices}),
                   draw_uniform({width * bits, width}, std::sqrt(3.0), draws, 3 * first)};
  }

  [[nodiscard]] std::vector<at::Tensor>& parameters() { return parameters_; }
  [[nodiscard]] int64_t width() const { return scale_.size(0); }
  [[nodiscard]] int64_t bits_of_a_row() const { return parameters_[6].size(0); }

  /// Lengths [n, 1] and logits of the choices [n, bits / 2, 4].
  struct Read {
    at::Tensor lengths, logits;
  };
  [[nodiscard]] Read read(const at::Tensor& rows) const {
    const auto& p = parameters_;
    const at::Tensor x = rows / (scale_ + kTiny), lengths = x.norm(2, -1, /*keepdim=*/true);
    const at::Tensor normal = at::layer_norm(x / (lengths + kTiny), {x.size(1)}, p[0], p[1]);
    const at::Tensor logits = at::linear(at::gelu(at::linear(normal, p[2], p[3])), p[4], p[5]);
    return {.lengths = lengths, .logits = logits.view({x.size(0), -1, 4})};
  }
  /// Bits of choices [n, bits / 2, 4], one-hot: [n, bits].
  [[nodiscard]] static at::Tensor bits(const at::Tensor& chosen) {
    return (chosen.narrow(-1, 0, 2) + chosen.narrow(-1, 2, 1)).flatten(1);
  }
  [[nodiscard]] at::Tensor restored(const at::Tensor& bits, const at::Tensor& lengths) const {
    const at::Tensor sum = bits.matmul(parameters_[6]);
    return sum / (sum.norm(2, -1, /*keepdim=*/true) + kTiny) * (lengths + kTiny) * (scale_ + kTiny);
  }

 private:
  at::Tensor scale_;  // [width], mean sizes of channels
  std::vector<at::Tensor> parameters_;
};

at::Tensor best_choice(const at::Tensor& logits) {
  return at::zeros_like(logits).scatter(-1, logits.argmax(-1, /*keepdim=*/true), 1);
}

class CodebookFitter final : public Fitter {
 public:
  CodebookFitter(FittedRequest artifact, int64_t bits, int64_t code_bits)
      : artifact_(std::move(artifact)), bits_(bits), code_bits_(code_bits) {}

  FittedRequest artifact() const override { return artifact_; }
  Needs needs() const override { return {}; }
  int64_t sample_tokens() const override { return 1024; }

  FittedTensors collect(const LayerView& layer, const RandomStream& draws) const override {
    const at::Tensor rows = draw_rows(layer.n(), kRowsPerText, draws);
    const auto by_row = [&](const at::Tensor& x) { return x.index_select(1, rows).transpose(0, 1); };
    return {{"keys", weight_of(by_row(unrotated_keys(layer)))},
            {"values", weight_of(by_row(layer.values()).flatten(1))}};
  }

  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& draws) const override {
    FittedTensors solved = points(joined(records, "keys"), draws);
    solved.merge(network(joined(records, "values"), draws));
    return solved;
  }

 private:
  static constexpr int64_t kRowsPerText = 256;

  /// Points [kv_heads, codebooks, points, head_dim] for keys [n, kv_heads, head_dim], and errors after each codebook.
  [[nodiscard]] FittedTensors points(const at::Tensor& keys, const RandomStream& draws) const {
    const at::Tensor sizes = keys.flatten(1).norm(2, 1, /*keepdim=*/true);
    const PointFitter fitter(int64_t{1} << (code_bits_ / 2), sizes);
    std::vector<at::Tensor> heads, errors;
    for (int64_t head = 0; head < keys.size(1); ++head) {
      const PointFitter::Found found = fitter.fit(keys.select(1, head) / sizes, bits_ * keys.size(2) / code_bits_,
                                                  draws, static_cast<uint64_t>(head) << 40);
      heads.push_back(found.points);
      errors.push_back(found.errors);
    }
    return {{"points", weight_of(at::stack(heads))}, {"key_errors", weight_of(at::stack(errors))}};
  }

  [[nodiscard]] FittedTensors network(const at::Tensor& values, const RandomStream& draws) const {
    const at::Tensor scale = values.abs().mean(0);
    ValueCoder coder(scale, bits_, draws);
    int64_t drawn = int64_t{1} << 40;
    descend(coder.parameters(), values.size(0),
            {.epochs = 30, .batch = 256, .learning_rate = 1e-3, .weight_decay = 0.1}, draws,
            [&](const at::Tensor& rows) {
              const at::Tensor wanted = values.index_select(0, rows);
              const ValueCoder::Read read = coder.read(wanted);
              const at::Tensor u = (draw_uniform(read.logits.sizes(), 1, draws, drawn) + 1) / 2;
              drawn += u.numel();
              // A choice by Gumbel noise, whose gradient is that of the probabilities (Jang, Gu, Poole 2017).
              const at::Tensor noisy = read.logits - (-(u.clamp(1e-7, 1 - 1e-7)).log()).log(), soft = noisy.softmax(-1);
              const at::Tensor chosen = best_choice(noisy.detach()) + soft - soft.detach();
              return at::mse_loss(coder.restored(ValueCoder::bits(chosen), read.lengths), wanted);
            });
    FittedTensors solved = {{"value_scale", weight_of(scale)}};
    for (size_t i = 0; i < ValueCoder::kNames.size(); ++i)
      solved[std::string("value.") + ValueCoder::kNames[i]] = weight_of(coder.parameters()[i]);
    return solved;
  }

  FittedRequest artifact_;
  int64_t bits_, code_bits_;
};

/// The model's codebooks of a layer.
struct Codebooks {
  std::vector<std::vector<TurnedPoints>> keys;  // [kv_heads][codebooks]
  ValueCoder values;
  int64_t code_bits = 0;
  std::shared_ptr<const FittedWeights> weights;  // whose memory these read
};

/// Codes of a layer's entries: whole bytes an entry for each side, and a length (f16) for each.
class VectorCodes final : public RowCodes {
 public:
  VectorCodes(std::shared_ptr<const Codebooks> books, LedgerPtr ledger)
      : books_(std::move(books)),
        ledger_(std::move(ledger)),
        codes_(LedgerAllocator<uint8_t>(ledger_)),
        lengths_(LedgerAllocator<uint16_t>(ledger_)) {}

  void append(int64_t /*first*/, int64_t count, const EntryRows& exact) override {
    const auto rows = [count](const std::vector<float>& x) {
      return at::from_blob(const_cast<float*>(x.data()), {count, std::ssize(x) / count});
    };
    const at::Tensor key_rows = rows(exact.keys), sizes = key_rows.norm(2, 1, /*keepdim=*/true);
    const std::vector<at::Tensor> heads = (key_rows / sizes.clamp_min(kTiny)).chunk(std::ssize(books_->keys), 1);
    std::vector<at::Tensor> bits;  // [count, any] each
    for (size_t head = 0; head < heads.size(); ++head) {
      at::Tensor left = heads[head];
      for (const TurnedPoints& book : books_->keys[head]) {
        const at::Tensor codes = book.distances(left).argmin(1);
        left = left - book.centres(codes);
        bits.push_back(codes.unsqueeze(1).bitwise_right_shift(at::arange(books_->code_bits)).bitwise_and(1));
      }
    }
    const ValueCoder::Read read = books_->values.read(rows(exact.values));
    bits.push_back(ValueCoder::bits(best_choice(read.logits)).to(at::kLong));
    const at::Tensor all = at::cat(bits, 1).to(at::kByte).contiguous();
    bits_ = all.size(1);
    const size_t before = codes_.size();
    codes_.resize(before + static_cast<size_t>(count * row_bytes()));
    for (int64_t i = 0; i < count; ++i)
      kernels::pack_codes(all[i].const_data_ptr<uint8_t>(), bits_, 1, codes_.data() + before + i * row_bytes());
    for (int64_t i = 0; i < count; ++i) {
      lengths_.push_back(kernels::f32_to_f16(sizes[i].item<float>()));
      lengths_.push_back(kernels::f32_to_f16(read.lengths[i].item<float>()));
    }
  }

  [[nodiscard]] EntryRows rows(int64_t count) const override {
    const int64_t width = books_->values.width(), d = width / std::ssize(books_->keys);
    EntryRows all{.keys = std::vector<float>(static_cast<size_t>(count * width)), .values = {}};
    const at::Tensor value_bits = at::empty({count, books_->values.bits_of_a_row()}), sizes = at::empty({count, 1});
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* const codes = codes_.data() + i * row_bytes();
      int64_t bit = 0;
      float* const row = all.keys.data() + i * width;
      for (size_t head = 0; head < books_->keys.size(); ++head) {
        for (const TurnedPoints& book : books_->keys[head]) {
          book.add(code_at(codes, bit), row + static_cast<int64_t>(head) * d);
          bit += books_->code_bits;
        }
      }
      const float size = kernels::f16_to_f32(lengths_[2 * i]);
      for (int64_t c = 0; c < width; ++c) row[c] *= size;
      float* const value = value_bits.mutable_data_ptr<float>() + i * value_bits.size(1);
      for (int64_t c = 0; c < value_bits.size(1); ++c, ++bit)
        value[c] = static_cast<float>(codes[bit / 8] >> (bit % 8) & 1);
      sizes.mutable_data_ptr<float>()[i] = kernels::f16_to_f32(lengths_[2 * i + 1]);
    }
    const at::Tensor values = books_->values.restored(value_bits, sizes).contiguous();
    all.values.assign(values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel());
    return all;
  }

  void truncate(int64_t entries) override {
    codes_.resize(static_cast<size_t>(entries * row_bytes()));
    lengths_.resize(static_cast<size_t>(2 * entries));
  }
  [[nodiscard]] int64_t bytes() const override {
    return static_cast<int64_t>(codes_.capacity() + lengths_.capacity() * sizeof(uint16_t));
  }
  [[nodiscard]] std::unique_ptr<RowCodes> clone(const LedgerPtr& ledger) const override {
    auto copy = std::make_unique<VectorCodes>(books_, ledger);
    copy->bits_ = bits_;
    copy->codes_.assign(codes_.begin(), codes_.end());
    copy->lengths_.assign(lengths_.begin(), lengths_.end());
    return copy;
  }

 private:
  [[nodiscard]] int64_t row_bytes() const { return (bits_ + 7) / 8; }
  /// The code whose first and lowest bit is bit `first` of an entry's.
  [[nodiscard]] int64_t code_at(const uint8_t* codes, int64_t first) const {
    uint32_t bits = 0;
    for (int64_t byte = first / 8; byte * 8 < first + books_->code_bits; ++byte)
      bits |= uint32_t{codes[byte]} << 8 * (byte - first / 8);
    return bits >> first % 8 & ((1U << books_->code_bits) - 1);
  }

  std::shared_ptr<const Codebooks> books_;
  LedgerPtr ledger_;
  LedgerVector<uint8_t> codes_;
  LedgerVector<uint16_t> lengths_;  // of keys and values of each entry
  int64_t bits_ = 0;                // of an entry
};

/// Additive vector quantisation whose key codebooks commute with rotary rotations. Of a token's keys (before rotation,
/// all heads together at length 1) each head's vector is the sum of centres from R codebooks, each the nearest to what
/// those before it leave. A codebook's centres are p_A + J p_B for all pairs of its 2^(code_bits / 2) points, J a
/// quarter turn of every rotary pair of channels; R is as many as `bits` for each channel pay for (the authors' code
/// rounds down). Points are fitted by expectation and maximisation with a falling temperature. A token's values become
/// `bits` bits for each channel by a small network, and the sum of the codebook rows of the bits that are set, at the
/// values' length. Lengths of both are stored in f16. Entries are coded in blocks of 128, the rest waits in 16 bits.
/// The authors train on GPUs for 100,000 steps with a second loss on attention's outputs; the fit here lowers the
/// squared error of values alone, on what text it is given. They draw noise when they encode; here the most likely
/// choice is taken. Attention is computed on restored keys, not in the order that saves work. Codebooks and network are
/// the model's and not counted for a request. Li, Zhang, Hassan, Chafekar, Cai, Ren, Guo, Karimzadeh, Reed, Wang, Gan
/// 2025, arXiv:2506.18879. Weights: `kvarena fit`.
class CommVq final : public Codec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(1).max(2).doc("of a number, lengths aside");
    p("code_bits", code_bits_)
        .min(2)
        .max(12)
        .doc(
            "of a key code, even: 2^code_bits centres from 2^(code_bits/2) "
            "points");
    p("weights", weights_).doc("file of fitted codebooks; empty = the project's for the model");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (code_bits_ % 2 == 0) return;
    problems.push_back(describe(
        {.place = place + ".code_bits", .found = fmt::format("{}", code_bits_), .expected = "an even number"}));
  }
  std::string check_layer(const LayerContext& layer) const override {
    const int64_t d = layer.cache.shape().head_dim;
    if (bits_ * d >= code_bits_) return {};
    return fmt::format("code_bits: found {}, more than {} bits for each of {} channels", code_bits_, bits_, d);
  }
  std::unique_ptr<Fitter> fitter() const override {
    return std::make_unique<CodebookFitter>(artifact(), bits_, code_bits_);
  }
  int64_t key_block() const override { return 128; }

  std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override {
    const LedgerPtr& ledger = layer.cache.ledger();
    auto codes = std::make_unique<VectorCodes>(codebooks(layer), ledger);
    return std::make_unique<CodedRowsSegment>(layer.cache.shape(), std::move(codes), rotary_keys(layer), ledger);
  }

 private:
  [[nodiscard]] FittedRequest artifact() const {
    return {.method = "commvq", .variant = fmt::format("bits{}-codes{}", bits_, code_bits_), .path = weights_};
  }
  [[nodiscard]] std::shared_ptr<const Codebooks> codebooks(const LayerContext& layer) const {
    const auto weights = fitted_weights(layer.model, artifact());
    const LayerShape& shape = layer.cache.shape();
    const int64_t width = shape.kv_heads * shape.head_dim, points = int64_t{1} << (code_bits_ / 2);
    const auto read = [&](const std::string& name, const std::vector<int64_t>& sizes) {
      return tensor_of(weights->at(fmt::format("layers.{}.{}", layer.layer, name), sizes)).clone();
    };
    std::vector<at::Tensor> network;
    for (const char* const name : ValueCoder::kNames)
      network.push_back(read(std::string("value.") + name, std::string(name) == "embedding"
                                                               ? std::vector<int64_t>{width * bits_, width}
                                                               : std::vector<int64_t>(name_sizes(name), -1)));
    auto books = std::make_shared<Codebooks>(Codebooks{
        .keys = {}, .values = {read("value_scale", {width}), network}, .code_bits = code_bits_, .weights = weights});
    const at::Tensor all =
        read("points", {shape.kv_heads, bits_ * shape.head_dim / code_bits_, points, shape.head_dim});
    for (const at::Tensor& head : all.unbind()) {
      auto& own = books->keys.emplace_back();
      for (const at::Tensor& book : head.unbind()) own.emplace_back(book);
    }
    return books;
  }
  static size_t name_sizes(const std::string& name) {
    return name.starts_with("norm") || name.ends_with("bias") ? 1 : 2;
  }

  int64_t bits_ = 2;
  int64_t code_bits_ = 12;
  std::string weights_;
};

KVARENA_CODEC(CommVq, {.name = "commvq",
                       .title = "CommVQ",
                       .summary = "Sums of centres that commute with rotations; values as bits of a small network.",
                       .paper = "arXiv:2506.18879, as the authors' code has it"});

}  // namespace
}  // namespace kvarena
