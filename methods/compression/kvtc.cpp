#include <ATen/ATen.h>
#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/method/bit_allocation.h"
#include "harness/method/fitted_weights.h"
#include "harness/method/layer_view.h"
#include "harness/method/stream_bytes.h"
#include "harness/method/stream_codec.h"
#include "harness/method/tensors.h"
#include "harness/method/unrotated_keys.h"
#include "kernels/common/dtype.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quantize/quantize.h"

namespace kvarena {
namespace {

constexpr int64_t kMostTokens = 4096;  // of a chunk

/// Numbers of one token and run as codes, which stand for shift + scale * code.
struct CodedRun {
  uint16_t shift = 0, scale = 0;  // f16
};
CodedRun code_run(const float* x, const ComponentRun& run, uint8_t* codes) {
  const auto [least, most] = std::minmax_element(x, x + run.size);
  const auto levels = static_cast<float>((1 << run.bits) - 1);
  const CodedRun coded{kernels::f32_to_f16(*least), kernels::f32_to_f16((*most - *least) / levels)};
  const float shift = kernels::f16_to_f32(coded.shift);
  const float scale = kernels::f16_to_f32(coded.scale);
  for (int64_t i = 0; i < run.size; ++i) {
    const float code = scale == 0 ? 0.0F : std::nearbyint((x[i] - shift) / scale);
    codes[i] = static_cast<uint8_t>(std::clamp(code, 0.0F, levels));
  }
  return coded;
}
void decode_run(const uint8_t* codes, const ComponentRun& run, const CodedRun& coded, float* x) {
  const float shift = kernels::f16_to_f32(coded.shift);
  const float scale = kernels::f16_to_f32(coded.scale);
  for (int64_t i = 0; i < run.size; ++i) x[i] = shift + scale * static_cast<float>(codes[i]);
}

/// Lossless compression of codes.
enum class Entropy { none, deflate, zstd };

std::vector<uint8_t> squeeze(Entropy entropy, const std::vector<uint8_t>& raw) {
  std::vector<uint8_t> small;
  switch (entropy) {
    case Entropy::none: return raw;
    case Entropy::deflate: {
      uLongf size = compressBound(raw.size());
      small.resize(size);
      compress2(small.data(), &size, raw.data(), raw.size(), Z_BEST_COMPRESSION);
      small.resize(size);
      break;
    }
    case Entropy::zstd: {
      small.resize(ZSTD_compressBound(raw.size()));
      small.resize(ZSTD_compress(small.data(), small.size(), raw.data(), raw.size(), 9));
      break;
    }
  }
  return small;
}

/// Fills `raw` to its size; false when the bytes hold anything else.
bool unsqueeze(Entropy entropy, std::span<const uint8_t> small, std::vector<uint8_t>& raw) {
  switch (entropy) {
    case Entropy::none:
      if (small.size() != raw.size()) return false;
      std::ranges::copy(small, raw.begin());
      return true;
    case Entropy::deflate: {
      uLongf size = raw.size();
      uLong used = small.size();
      return uncompress2(raw.data(), &size, small.data(), &used) == Z_OK && size == raw.size() && used == small.size();
    }
    case Entropy::zstd: return ZSTD_decompress(raw.data(), raw.size(), small.data(), small.size()) == raw.size();
  }
  return false;
}

/// Keys or values of a model: the mean, the directions and what of them is stored. Directions span all layers (one
/// part), or each those of one layer.
class Side {
 public:
  Side(const FittedWeights& weights, const std::string& name, int64_t width, double ratio) {
    const FittedTensor& basis = weights.at(name + ".basis", {-1, -1});
    const FittedTensor& mean = weights.at(name + ".mean", {width});
    const int64_t components = basis.shape[0];
    part_ = basis.shape[1];
    if (part_ <= 0 || width % part_ != 0) {
      fail({.place = weights.place,
            .found = fmt::format("{}.basis of {} numbers a direction", name, part_),
            .expected = fmt::format("a divisor of the {} numbers that a token has", width)});
    }
    const FittedTensor& owner = weights.at(name + ".part", {components});
    const RunErrors errors{
        .components = components,
        .errors = weights.at(name + ".errors", {kRunSizes.size(), kRunBits.size(), components}).values,
        .variance = weights.at(name + ".variance", {components}).values};
    runs_ = allocate_bits(errors, static_cast<int64_t>(16.0 * static_cast<double>(width) / ratio));
    stored_ = runs_.empty() ? 0 : runs_.back().first + runs_.back().size;
    for (int64_t p = 0; p < width / part_; ++p) add_part(p, basis, mean, owner);
  }

  [[nodiscard]] int64_t raw_bytes(int64_t tokens) const {
    int64_t bytes = 0;
    for (const ComponentRun& run : runs_) bytes += run.bytes(tokens);
    return bytes;
  }

  /// Rows [tokens, width] -> bytes.
  [[nodiscard]] std::vector<uint8_t> encode(const std::vector<float>& rows, int64_t tokens) const {
    const std::vector<float> numbers = project(rows, tokens);
    ByteWriter out;
    std::vector<uint8_t> codes;
    for (const ComponentRun& run : runs_) {
      codes.resize(static_cast<size_t>(tokens * run.size));
      std::vector<uint16_t> scales;
      for (int64_t t = 0; t < tokens; ++t) {
        const float* x = &numbers[t * stored_ + run.first];
        if (std::any_of(x, x + run.size, [](float v) { return std::fabs(v) > 65504; })) {
          fail({.place = fmt::format("kvtc, token {}", t),
                .found = "numbers beyond those of 16 bits",
                .expected = "a cache like those that the transform was fitted on"});
        }
        const CodedRun coded = code_run(x, run, &codes[t * run.size]);
        out.u16(coded.shift);
        scales.push_back(coded.scale);
      }
      if (run.size == 1) continue;
      for (const uint16_t scale : scales) out.u16(scale);
      std::vector<uint8_t> packed(codes.size() * static_cast<size_t>(run.bits) / 8 + 1);
      kernels::pack_codes(codes.data(), tokens * run.size, static_cast<int>(run.bits), packed.data());
      out.append(std::span(packed).first((codes.size() * static_cast<size_t>(run.bits) + 7) / 8));
    }
    return std::move(out.bytes);
  }

  /// raw_bytes() bytes -> rows [tokens, width].
  void decode(ByteReader& in, std::vector<float>& rows, int64_t tokens) const {
    std::vector<float> numbers(static_cast<size_t>(tokens * stored_));
    std::vector<uint8_t> codes;
    std::vector<CodedRun> coded(static_cast<size_t>(tokens));
    const auto number = [&] {
      const uint16_t x = in.u16();
      if ((x & 0x7c00U) == 0x7c00U) in.wrong("a scale or shift that is not finite", "a number");
      return x;
    };
    for (const ComponentRun& run : runs_) {
      for (CodedRun& c : coded) c.shift = number();
      codes.assign(static_cast<size_t>(tokens * run.size), 0);
      if (run.size > 1) {
        for (CodedRun& c : coded) c.scale = number();
        const auto packed = in.take((tokens * run.size * run.bits + 7) / 8);
        kernels::unpack_codes(packed.data(), tokens * run.size, static_cast<int>(run.bits), codes.data());
      }
      for (int64_t t = 0; t < tokens; ++t) {
        decode_run(&codes[t * run.size], run, coded[t], &numbers[t * stored_ + run.first]);
      }
    }
    expand(numbers, rows, tokens);
  }

 private:
  /// The stored components of one part.
  struct Part {
    std::vector<int64_t> components;  // of all, ascending
    kernels::PackedMatrix forward;    // [components, part]
    kernels::PackedMatrix backward;   // [part, components]
    std::vector<float> mean;          // [part]
    std::vector<float> offset;        // [components]: minus the mean's own numbers
  };

  void add_part(int64_t p, const FittedTensor& basis, const FittedTensor& mean, const FittedTensor& owner) {
    Part part;
    std::vector<float> directions;
    for (int64_t i = 0; i < stored_; ++i) {
      if (std::llround(owner.values[i]) != p) continue;
      part.components.push_back(i);
      directions.insert(directions.end(), &basis.values[i * part_], &basis.values[i * part_] + part_);
    }
    const auto count = static_cast<int64_t>(part.components.size());
    part.mean.assign(&mean.values[p * part_], &mean.values[p * part_] + part_);
    std::vector<float> turned(directions.size());
    for (int64_t i = 0; i < count; ++i) {
      double along = 0;
      for (int64_t c = 0; c < part_; ++c) {
        turned[c * count + i] = directions[i * part_ + c];
        along += static_cast<double>(directions[i * part_ + c]) * part.mean[c];
      }
      part.offset.push_back(static_cast<float>(-along));
    }
    part.forward = kernels::pack_weights(directions.data(), count, part_, kernels::DType::f32);
    part.backward = kernels::pack_weights(turned.data(), part_, count, kernels::DType::f32);
    parts_.push_back(std::move(part));
  }

  [[nodiscard]] std::vector<float> project(const std::vector<float>& rows, int64_t tokens) const {
    std::vector<float> numbers(static_cast<size_t>(tokens * stored_));
    for (size_t p = 0; p < parts_.size(); ++p) {
      const Part& part = parts_[p];
      const auto count = static_cast<int64_t>(part.components.size());
      if (count == 0) continue;
      std::vector<float> own(static_cast<size_t>(tokens * count));
      kernels::matmul({.x = &rows[p * part_],
                       .m = tokens,
                       .x_stride = width(),
                       .w = &part.forward,
                       .bias = part.offset.data(),
                       .y = own.data(),
                       .y_stride = count});
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t i = 0; i < count; ++i) numbers[t * stored_ + part.components[i]] = own[t * count + i];
      }
    }
    return numbers;
  }

  void expand(const std::vector<float>& numbers, std::vector<float>& rows, int64_t tokens) const {
    for (size_t p = 0; p < parts_.size(); ++p) {
      const Part& part = parts_[p];
      const auto count = static_cast<int64_t>(part.components.size());
      std::vector<float> own(static_cast<size_t>(tokens * count));
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t i = 0; i < count; ++i) own[t * count + i] = numbers[t * stored_ + part.components[i]];
      }
      kernels::matmul({.x = own.data(),
                       .m = tokens,
                       .x_stride = count,
                       .w = &part.backward,
                       .bias = part.mean.data(),
                       .y = &rows[p * part_],
                       .y_stride = width()});
    }
  }

  [[nodiscard]] int64_t width() const { return static_cast<int64_t>(parts_.size()) * part_; }

  std::vector<ComponentRun> runs_;
  int64_t stored_ = 0;  // components
  int64_t part_ = 0;    // numbers of a token that a direction spans
  std::vector<Part> parts_;
};

/// Keys or values of a chunk, a row a token: [tokens, layers * channels].
std::vector<float> by_token(const KvChunk& chunk, bool key) {
  std::vector<float> rows(static_cast<size_t>(chunk.layers * chunk.tokens * chunk.channels));
  for (int64_t t = 0; t < chunk.tokens; ++t) {
    for (int64_t layer = 0; layer < chunk.layers; ++layer) {
      std::copy_n(chunk.row(key, layer, t), chunk.channels, &rows[(t * chunk.layers + layer) * chunk.channels]);
    }
  }
  return rows;
}

class KvtcCoder final : public StreamCoder {
 public:
  KvtcCoder(const FittedWeights& weights, double ratio, Entropy entropy)
      : width_(weights.at("keys.mean", {-1}).shape[0]),
        keys_(weights, "keys", width_, ratio),
        values_(weights, "values", width_, ratio),
        entropy_(entropy) {}

  std::vector<uint8_t> encode(const KvChunk& chunk) const override {
    require_width(chunk);
    ByteWriter out;
    for (const bool key : {true, false}) {
      const Side& side = key ? keys_ : values_;
      const std::vector<uint8_t> small = squeeze(entropy_, side.encode(by_token(chunk, key), chunk.tokens));
      out.u32(static_cast<int64_t>(small.size()));
      out.append(small);
    }
    return std::move(out.bytes);
  }

  void decode(std::span<const uint8_t> bytes, KvChunk& chunk) const override {
    require_width(chunk);
    ByteReader in(bytes, "kvtc");
    for (const bool key : {true, false}) {
      const Side& side = key ? keys_ : values_;
      const auto small = in.take(in.u32());
      std::vector<uint8_t> raw(static_cast<size_t>(side.raw_bytes(chunk.tokens)));
      if (!unsqueeze(entropy_, small, raw)) {
        in.wrong("codes that do not fill their runs", fmt::format("{} bytes", raw.size()));
      }
      ByteReader codes(raw, "kvtc");
      std::vector<float> rows(static_cast<size_t>(chunk.tokens * width_));
      side.decode(codes, rows, chunk.tokens);
      for (int64_t t = 0; t < chunk.tokens; ++t) {
        for (int64_t layer = 0; layer < chunk.layers; ++layer) {
          std::copy_n(&rows[(t * chunk.layers + layer) * chunk.channels], chunk.channels, chunk.row(key, layer, t));
        }
      }
    }
    in.expect_end();
  }

  int64_t least_bytes(const KvChunk& sizes) const override {
    require_width(sizes);
    if (sizes.tokens > kMostTokens) {
      fail({.place = "kvtc stream",
            .found = fmt::format("{} tokens", sizes.tokens),
            .expected = fmt::format("at most {} a chunk", kMostTokens)});
    }
    return 2 * 4;  // two lengths; what is behind them may have been squeezed to nothing
  }

 private:
  void require_width(const KvChunk& chunk) const {
    if (chunk.layers * chunk.channels == width_) return;
    fail({.place = "kvtc",
          .found = fmt::format("a cache of {} layers of {} channels", chunk.layers, chunk.channels),
          .expected = fmt::format("{} numbers a token, as the transform was fitted on", width_)});
  }

  int64_t width_;
  Side keys_;
  Side values_;
  Entropy entropy_;
};

/// Leading directions of rows [n, width] around their mean, one a row, and their variances.
struct Directions {
  at::Tensor basis, variance;
};
Directions directions_of(const at::Tensor& centred, int64_t components, const RandomStream& draws, int64_t first_draw) {
  const int64_t n = centred.size(0);
  const int64_t width = centred.size(1);
  const int64_t rank = std::min({components, n, width});
  // Halko, Martinsson and Tropp 2011, algorithm 4.4: a random start, turned towards the leading directions.
  const int64_t more = std::min({rank + 16, n, width});
  at::Tensor start = draw_uniform({width, more}, 1.0, draws, first_draw).to(at::kFloat);
  at::Tensor found;
  for (int round = 0; round < 4; ++round) {
    found = std::get<0>(at::linalg_qr(at::matmul(centred, start)));      // [n, more]
    start = std::get<0>(at::linalg_qr(at::matmul(centred.t(), found)));  // [width, more]
  }
  const auto [left, sizes, right] = at::linalg_svd(at::matmul(centred, start), /*full_matrices=*/false);
  const at::Tensor basis = at::matmul(right, start.t()).narrow(0, 0, rank);
  return {basis.contiguous(), (sizes * sizes / static_cast<double>(n)).narrow(0, 0, rank).contiguous()};
}

/// RunErrors::errors measured on numbers [n, components].
std::vector<float> measure_errors(const at::Tensor& numbers) {
  const int64_t n = numbers.size(0);
  const int64_t components = numbers.size(1);
  const float* all = numbers.const_data_ptr<float>();
  std::vector<float> errors(kRunSizes.size() * kRunBits.size() * static_cast<size_t>(components));
  std::vector<uint8_t> codes(kRunSizes.back());
  std::vector<float> back(kRunSizes.back());
  for (size_t size = 0; size < kRunSizes.size(); ++size) {
    for (size_t bits = 0; bits < kRunBits.size(); ++bits) {
      for (int64_t first = 0; first + kRunSizes[size] <= components; first += std::min(kRunSizes[size], kRunAlign)) {
        const ComponentRun run{.first = first, .size = kRunSizes[size], .bits = kRunBits[bits]};
        double sum = 0;
        for (int64_t row = 0; row < n; ++row) {
          const float* x = all + row * components + first;
          decode_run(codes.data(), run, code_run(x, run, codes.data()), back.data());
          for (int64_t i = 0; i < run.size; ++i) sum += (x[i] - back[i]) * (x[i] - back[i]);
        }
        errors[(size * kRunBits.size() + bits) * static_cast<size_t>(components) + first] =
            static_cast<float>(sum / static_cast<double>(n));
      }
    }
  }
  return errors;
}

/// Mean, directions and what coding costs, of keys before rotation and of values.
class TransformFitter final : public Fitter {
 public:
  TransformFitter(std::string basis, int64_t components, int64_t sinks)
      : basis_(std::move(basis)), components_(components), sinks_(sinks) {}

  FittedRequest artifact() const override { return {.method = "kvtc", .variant = basis_, .path = {}}; }
  Needs needs() const override { return {}; }
  int64_t sample_tokens() const override { return 1024; }
  bool joint() const override { return true; }
  bool half() const override { return true; }

  FittedTensors collect(const LayerView& layer, const RandomStream& draws) const override {
    const int64_t first = std::min(sinks_, layer.n() - 1);
    const at::Tensor rows = draw_rows(layer.n() - first, kRowsPerText, draws) + first;
    const auto by_row = [&](const at::Tensor& x) {  // [kv_heads, n, head_dim] -> [rows, kv_heads * head_dim]
      return x.index_select(1, rows).transpose(0, 1).flatten(1).contiguous();
    };
    return {{"keys", weight_of(by_row(unrotated_keys(layer)))}, {"values", weight_of(by_row(layer.values()))}};
  }
  FittedTensors join(std::vector<FittedTensors> layers) const override {
    FittedTensors all;
    for (const char* side : {"keys", "values"}) {
      std::vector<at::Tensor> parts;
      for (const FittedTensors& layer : layers) parts.push_back(tensor_of(layer.at(side)));
      all[side] = weight_of(at::stack(parts, 1).contiguous());  // [rows, layers, channels]
    }
    return all;
  }

  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& draws) const override {
    FittedTensors solved;
    int64_t draw = 0;
    for (const std::string side : {"keys", "values"}) {
      const at::Tensor rows = joined(records, side);
      const at::Tensor mean = rows.mean(0);
      const at::Tensor centred = rows - mean;
      const int64_t parts = basis_ == "global" ? 1 : rows.size(1);
      std::vector<at::Tensor> basis;
      std::vector<at::Tensor> variance;
      std::vector<at::Tensor> part;
      std::vector<at::Tensor> numbers;
      for (int64_t p = 0; p < parts; ++p) {
        const at::Tensor own = (parts == 1 ? centred.flatten(1) : centred.select(1, p)).contiguous();
        const Directions found = directions_of(own, (components_ + parts - 1) / parts, draws, draw);
        draw += own.size(1) * (own.size(1) + 16);
        basis.push_back(found.basis);
        variance.push_back(found.variance);
        part.push_back(at::full({found.variance.size(0)}, static_cast<double>(p), at::kFloat));
        numbers.push_back(at::matmul(own, found.basis.t()));
      }
      const at::Tensor all = at::cat(variance);
      const at::Tensor order = all.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
      const int64_t sample = std::min<int64_t>(rows.size(0), kRowsOfErrors);
      const at::Tensor ordered = at::cat(numbers, 1).index_select(1, order).narrow(0, 0, sample).contiguous();
      solved[side + ".mean"] = weight_of(mean.flatten().contiguous());
      solved[side + ".basis"] = weight_of(at::cat(basis).index_select(0, order).contiguous());
      solved[side + ".part"] = weight_of(at::cat(part).index_select(0, order).contiguous());
      solved[side + ".variance"] = weight_of(all.index_select(0, order).contiguous());
      solved[side + ".errors"] = {.shape = {kRunSizes.size(), kRunBits.size(), order.size(0)},
                                  .values = measure_errors(ordered)};
    }
    return solved;
  }
  FittedTensors assemble(const std::vector<FittedTensors>& layers) const override { return layers.front(); }

 private:
  static constexpr int64_t kRowsPerText = 96;
  static constexpr int64_t kRowsOfErrors = 512;

  std::string basis_;
  int64_t components_;
  int64_t sinks_;
};

/// Caches decorrelated over layers and heads, with bits where the variance is, and DEFLATE.  A token's keys (before
/// rotation) of all layers and heads are one row x; with the mean and the principal directions of calibration rows
///   z = V (x - mean),  restored  x = mean + V^T z.
/// Components, largest variance first, are cut into runs of 1, 16, 64, 256 or 1024; a run has one width of 8, 4 or 2
/// bits and a shift and scale (f16) a token; a run of one is its number in f16. Which runs: a dynamic programme over
/// (components, bits spent, width), widths never rising, of least squared error on calibration rows within 16 /
/// target_cr bits a number, which leaves the last components out. Likewise values. The first 4 and last 128 tokens stay
/// in 16 bits. target_cr counts what is coded, before the entropy stage. Not in the paper: integers of 8 bits for its
/// fp8, and basis "per_layer", directions within each layer, whose fit needs far less room for the same number of
/// directions. Staniszewski and Lancucki 2026, arXiv:2511.01815, section 3. No code by the authors is public;
/// tests/golden/kvtc.py restates it.
class Kvtc final : public StreamCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("target_cr", target_cr_).min(1).max(64).doc("compression of the coded tokens, before entropy coding");
    p("sinks", sinks_).min(0).doc("first tokens that stay in 16 bits");
    p("window", window_).min(0).doc("last tokens of the prompt that stay in 16 bits");
    p("basis", basis_).one_of({"global", "per_layer"}).doc("what a direction spans; per_layer is not the paper's");
    p("components", components_).min(1).doc("directions that a fit keeps, of keys and of values");
    p("entropy", entropy_).one_of({"deflate", "zstd", "none"}).doc("lossless coding of the codes");
    p("chunk", chunk_).min(1).max(kMostTokens).doc("tokens that are coded together");
    p("weights", weights_).doc("file of a fitted transform; empty = the project's for the model");
  }
  int64_t chunk_tokens() const override { return chunk_; }
  int64_t sinks() const override { return sinks_; }
  int64_t recent() const override { return window_; }
  bool before_rotation() const override { return true; }
  bool spans_layers() const override { return true; }
  std::unique_ptr<Fitter> fitter() const override {
    return std::make_unique<TransformFitter>(basis_, components_, sinks_);
  }
  std::unique_ptr<StreamCoder> coder(const ModelFacts* model) const override {
    const Entropy entropy = entropy_ == "none"      ? Entropy::none
                            : entropy_ == "deflate" ? Entropy::deflate
                                                    : Entropy::zstd;
    const auto weights = fitted_weights(model, {.method = "kvtc", .variant = basis_, .path = weights_});
    return std::make_unique<KvtcCoder>(*weights, target_cr_, entropy);
  }

 private:
  double target_cr_ = 16;
  int64_t sinks_ = 4;
  int64_t window_ = 128;
  std::string basis_ = "global";
  int64_t components_ = 2048;
  std::string entropy_ = "deflate";
  int64_t chunk_ = 256;
  std::string weights_;
};

KVARENA_STREAM(Kvtc, {.name = "kvtc",
                      .title = "KVTC",
                      .summary = "Decorrelates layers and heads, spends bits by variance, and deflates, for storage.",
                      .paper = "arXiv:2511.01815, section 3"});

}  // namespace
}  // namespace kvarena
