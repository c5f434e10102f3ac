#include "harness/model/sentence_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/model/safetensors.h"
#include "harness/model/tokenizer/tokenizer.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"

namespace kvarena {
namespace {

constexpr size_t kLongestInput = 256;  // word pieces with [CLS] and [SEP] (sentence_bert_config.json)

struct Linear {
  kernels::PackedMatrix weight;  // [out, in]
  std::vector<float> bias;       // [out]
};

struct LayerNorm {
  std::vector<float> weight, bias;  // [hidden_size]
};

struct Layer {
  Linear query, key, value, attention_out, up, down;
  LayerNorm attention_norm, output_norm;
};

struct Config {
  int64_t hidden_size = 0, layers = 0, heads = 0, feed_forward = 0;
  float eps = 1e-12F;
};

Config read_config(const std::filesystem::path& file) {
  const nlohmann::json json = nlohmann::json::parse(read_file(file), nullptr, false);
  const bool bert = json.is_object() && json.value("model_type", "") == "bert" &&
                    json.value("hidden_act", "") == "gelu" &&
                    json.value("position_embedding_type", "absolute") == "absolute";
  if (!bert) {
    fail({.place = file.string(), .found = "another kind of model", .expected = "a BERT encoder with gelu"});
  }
  const Config config{.hidden_size = json.value("hidden_size", int64_t{0}),
                      .layers = json.value("num_hidden_layers", int64_t{0}),
                      .heads = json.value("num_attention_heads", int64_t{0}),
                      .feed_forward = json.value("intermediate_size", int64_t{0}),
                      .eps = json.value("layer_norm_eps", 1e-12F)};
  if (config.hidden_size <= 0 || config.layers <= 0 || config.heads <= 0 || config.feed_forward <= 0 ||
      config.hidden_size % config.heads != 0) {
    fail({.place = file.string(),
          .found = fmt::format("hidden size {}, {} layers, {} heads", config.hidden_size, config.layers, config.heads),
          .expected = "positive sizes, a hidden size that the heads divide"});
  }
  return config;
}

class Weights {
 public:
  explicit Weights(const std::filesystem::path& file) : checkpoint_(open_safetensors(file)) {}

  [[nodiscard]] std::vector<float> tensor(const std::string& name, const std::vector<int64_t>& shape) const {
    const TensorInfo& info = checkpoint_->at(name);
    const bool as_expected = info.shape.size() == shape.size() &&
                             std::equal(shape.begin(), shape.end(), info.shape.begin(),
                                        [](int64_t want, int64_t is) { return want == is || want < 0; });
    if (!as_expected) {
      fail({.place = fmt::format("{}: {}", checkpoint_->path().string(), name),
            .found = fmt::format("shape [{}]", fmt::join(info.shape, ", ")),
            .expected = "the shape that config.json gives it"});
    }
    std::vector<float> values(static_cast<size_t>(info.elements()));
    checkpoint_->read_f32(name, values);
    return values;
  }
  [[nodiscard]] Linear linear(const std::string& name, int64_t out, int64_t in) const {
    return {.weight = kernels::pack_weights(tensor(name + ".weight", {out, in}).data(), out, in, kernels::DType::f32),
            .bias = tensor(name + ".bias", {out})};
  }
  [[nodiscard]] LayerNorm norm(const std::string& name, int64_t width) const {
    return {.weight = tensor(name + ".weight", {width}), .bias = tensor(name + ".bias", {width})};
  }

 private:
  std::unique_ptr<Checkpoint> checkpoint_;
};

/// y = x w^T + b for rows [m, in].
std::vector<float> project(const Linear& linear, const std::vector<float>& x) {
  const int64_t in = linear.weight.k();
  const int64_t out = linear.weight.n();
  const int64_t rows = static_cast<int64_t>(x.size()) / in;
  std::vector<float> y(static_cast<size_t>(rows * out));
  kernels::matmul({.x = x.data(),
                   .m = rows,
                   .x_stride = in,
                   .w = &linear.weight,
                   .bias = linear.bias.data(),
                   .y = y.data(),
                   .y_stride = out});
  return y;
}

/// Normalises each row [width] to mean 0 and variance 1, then applies weight and bias.
void normalise(std::vector<float>& x, const LayerNorm& norm, float eps) {
  const size_t width = norm.weight.size();
  for (size_t row = 0; row < x.size(); row += width) {
    double sum = 0;
    double squares = 0;
    for (size_t i = 0; i < width; ++i) sum += x[row + i];
    const double mean = sum / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) squares += (x[row + i] - mean) * (x[row + i] - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (size_t i = 0; i < width; ++i) {
      x[row + i] = static_cast<float>((x[row + i] - mean) * scale) * norm.weight[i] + norm.bias[i];
    }
  }
}

float gelu(float x) { return 0.5F * x * (1 + std::erf(x * std::numbers::sqrt2_v<float> / 2)); }

/// softmax(q k^T / sqrt(head_dim)) v for one head; every token sees every other. q, k, v, out are [n, hidden].
void attend(const float* q, const float* k, const float* v, float* out, size_t n, size_t hidden, size_t head_dim) {
  const float scale = 1 / std::sqrt(static_cast<float>(head_dim));
  std::vector<float> weights(n);
  for (size_t i = 0; i < n; ++i) {
    float largest = -std::numeric_limits<float>::infinity();
    for (size_t j = 0; j < n; ++j) {
      float dot = 0;
      for (size_t d = 0; d < head_dim; ++d) dot += q[i * hidden + d] * k[j * hidden + d];
      weights[j] = dot * scale;
      largest = std::max(largest, weights[j]);
    }
    float sum = 0;
    for (float& weight : weights) sum += weight = std::exp(weight - largest);
    for (size_t j = 0; j < n; ++j) {
      for (size_t d = 0; d < head_dim; ++d) out[i * hidden + d] += weights[j] / sum * v[j * hidden + d];
    }
  }
}

std::vector<float> sum_of(std::vector<float> x, const std::vector<float>& y) {
  kernels::add_into(x.data(), y.data(), static_cast<int64_t>(x.size()));
  return x;
}

}  // namespace

struct SentenceEncoder::Parts {
  explicit Parts(const std::filesystem::path& folder)
      : config(read_config(folder / "config.json")), tokenizer(load_tokenizer(folder / "tokenizer.json")) {
    const Weights weights(folder / "model.safetensors");
    const int64_t h = config.hidden_size;
    words = weights.tensor("embeddings.word_embeddings.weight", {-1, h});
    positions = weights.tensor("embeddings.position_embeddings.weight", {-1, h});
    types = weights.tensor("embeddings.token_type_embeddings.weight", {-1, h});
    embedding_norm = weights.norm("embeddings.LayerNorm", h);
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string at = fmt::format("encoder.layer.{}.", i);
      layers.push_back({.query = weights.linear(at + "attention.self.query", h, h),
                        .key = weights.linear(at + "attention.self.key", h, h),
                        .value = weights.linear(at + "attention.self.value", h, h),
                        .attention_out = weights.linear(at + "attention.output.dense", h, h),
                        .up = weights.linear(at + "intermediate.dense", config.feed_forward, h),
                        .down = weights.linear(at + "output.dense", h, config.feed_forward),
                        .attention_norm = weights.norm(at + "attention.output.LayerNorm", h),
                        .output_norm = weights.norm(at + "output.LayerNorm", h)});
    }
    const auto begin = tokenizer->find("[CLS]");
    const auto end = tokenizer->find("[SEP]");
    if (!begin || !end || positions.size() < kLongestInput * static_cast<size_t>(h) ||
        words.size() < static_cast<size_t>(tokenizer->vocab_size() * h)) {
      fail({.place = folder.string(),
            .found = "a tokenizer and weights that do not belong together",
            .expected = "[CLS], [SEP], 256 positions, and an embedding for every word piece"});
    }
    cls = *begin;
    sep = *end;
  }

  /// All word pieces, without [CLS] and [SEP].
  [[nodiscard]] std::vector<int32_t> pieces(std::string_view text) const {
    return tokenizer->encode(text, {.add_special = false, .parse_special = false});
  }

  /// Hidden states after the last layer, [ids, hidden_size].
  [[nodiscard]] std::vector<float> run(const std::vector<int32_t>& ids) const;

  Config config;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<float> words, positions, types;  // [vocabulary, h], [positions, h], [2, h]
  LayerNorm embedding_norm;
  std::vector<Layer> layers;
  int32_t cls = 0, sep = 0;
};

std::vector<float> SentenceEncoder::Parts::run(const std::vector<int32_t>& ids) const {
  const auto h = static_cast<size_t>(config.hidden_size);
  const size_t head_dim = h / static_cast<size_t>(config.heads);
  std::vector<float> x(ids.size() * h);
  for (size_t t = 0; t < ids.size(); ++t) {
    for (size_t i = 0; i < h; ++i) {
      x[t * h + i] = words[static_cast<size_t>(ids[t]) * h + i] + types[i] + positions[t * h + i];
    }
  }
  normalise(x, embedding_norm, config.eps);
  for (const Layer& layer : layers) {
    const std::vector<float> q = project(layer.query, x);
    const std::vector<float> k = project(layer.key, x);
    const std::vector<float> v = project(layer.value, x);
    std::vector<float> mixed(x.size());
    for (size_t head = 0; head < h; head += head_dim) {
      attend(&q[head], &k[head], &v[head], &mixed[head], ids.size(), h, head_dim);
    }
    x = sum_of(project(layer.attention_out, mixed), x);
    normalise(x, layer.attention_norm, config.eps);
    std::vector<float> inner = project(layer.up, x);
    for (float& value : inner) value = gelu(value);
    x = sum_of(project(layer.down, inner), x);
    normalise(x, layer.output_norm, config.eps);
  }
  return x;
}

SentenceEncoder::SentenceEncoder(const std::filesystem::path& folder) : parts_(std::make_unique<Parts>(folder)) {}
SentenceEncoder::~SentenceEncoder() = default;

bool SentenceEncoder::cuts(std::string_view text) const { return parts_->pieces(text).size() > kLongestInput - 2; }

std::vector<float> SentenceEncoder::embed(std::string_view text) const {
  std::vector<int32_t> ids = parts_->pieces(text);
  ids.resize(std::min(ids.size(), kLongestInput - 2));
  ids.insert(ids.begin(), parts_->cls);
  ids.push_back(parts_->sep);
  const std::vector<float> states = parts_->run(ids);
  const auto h = static_cast<size_t>(parts_->config.hidden_size);
  std::vector<double> mean(h);
  for (size_t i = 0; i < states.size(); ++i) mean[i % h] += states[i];
  double squares = 0;
  for (double& value : mean) {
    value /= static_cast<double>(ids.size());
    squares += value * value;
  }
  const double norm = std::max(std::sqrt(squares), 1e-12);
  std::vector<float> embedding(h);
  for (size_t i = 0; i < h; ++i) embedding[i] = static_cast<float>(mean[i] / norm);
  return embedding;
}

}  // namespace kvarena
