#pragma once
// SpeCache's algorithms (arXiv:2503.16163, appendix A) restated in float64 over a float64 Llama: what the real session
// must compute. Only the codec is the real one: its packed copy is read back.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "harness/cache/overlay_view.h"
#include "harness/method/method.h"
#include "tests/support/tiny_model.h"

namespace kvarena::testing {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// ---- The model in float64 -------------------------------------------------------------------------------------------

inline Row read_matrix(const Checkpoint& checkpoint, const std::string& name) {
  const auto& infos = checkpoint.tensors();
  const auto info = std::ranges::find(infos, name, &TensorInfo::name);
  std::vector<float> values(static_cast<size_t>(info->elements()));
  checkpoint.read_rows_f32(name, 0, info->rows(), values);
  return {values.begin(), values.end()};
}

/// y = W x, W [rows, x.size()].
inline Row times(const Row& w, const Row& x) {
  Row y(w.size() / x.size());
  for (size_t r = 0; r < y.size(); ++r) {
    y[r] = std::inner_product(x.begin(), x.end(), w.begin() + static_cast<int64_t>(r * x.size()), 0.0);
  }
  return y;
}

inline Row normalised(const Row& x, const Row& weight, double eps) {
  const double mean = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(x.size());
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] / std::sqrt(mean + eps) * weight[i];
  return y;
}

/// Query, key and value of one new token in a layer.
struct Projected {
  Row q;  // [q_heads * head_dim], rotated
  Row k;  // [kv_heads * head_dim], rotated
  Row v;
};

/// The tiny Llama, a token at a time, with attention left to the caller.
class Model64 {
 public:
  explicit Model64(const ModelConfig& config) : c(config), checkpoint_(llama_tensors(config), 1) {
    embedding_ = read_matrix(checkpoint_, "model.embed_tokens.weight");
    norm_ = read_matrix(checkpoint_, "model.norm.weight");
    const std::vector<std::string> names = {
        "input_layernorm",  "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
        "self_attn.v_proj", "self_attn.o_proj",         "mlp.gate_proj",    "mlp.up_proj",
        "mlp.down_proj"};
    for (int64_t layer = 0; layer < c.layers; ++layer) {
      for (const std::string& name : names) {
        weights_[fmt::format("{}.{}", layer, name)] =
            read_matrix(checkpoint_, fmt::format("model.layers.{}.{}.weight", layer, name));
      }
    }
  }

  [[nodiscard]] Row embed(int32_t token) const {
    return {embedding_.begin() + token * c.hidden_size, embedding_.begin() + (token + 1) * c.hidden_size};
  }
  [[nodiscard]] Projected project(int64_t layer, const Row& x, int64_t position) const {
    const Row in = normalised(x, w(layer, "input_layernorm"), c.rms_norm_eps);
    Projected result{times(w(layer, "self_attn.q_proj"), in), times(w(layer, "self_attn.k_proj"), in),
                     times(w(layer, "self_attn.v_proj"), in)};
    rotate(result.q, position);
    rotate(result.k, position);
    return result;
  }
  /// The stream after the layer, given what its attention brought.
  [[nodiscard]] Row finish(int64_t layer, Row x, const Row& attended) const {
    const Row out = times(w(layer, "self_attn.o_proj"), attended);
    for (size_t i = 0; i < x.size(); ++i) x[i] += out[i];
    const Row in = normalised(x, w(layer, "post_attention_layernorm"), c.rms_norm_eps);
    Row gate = times(w(layer, "mlp.gate_proj"), in);
    const Row up = times(w(layer, "mlp.up_proj"), in);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    const Row down = times(w(layer, "mlp.down_proj"), gate);
    for (size_t i = 0; i < x.size(); ++i) x[i] += down[i];
    return x;
  }
  [[nodiscard]] Row logits(const Row& x) const { return times(embedding_, normalised(x, norm_, c.rms_norm_eps)); }

  const ModelConfig c;

 private:
  [[nodiscard]] const Row& w(int64_t layer, const char* name) const {
    return weights_.at(fmt::format("{}.{}", layer, name));
  }
  void rotate(Row& heads, int64_t position) const {
    const int64_t d = c.head_dim;
    for (size_t at = 0; at < heads.size(); at += static_cast<size_t>(d)) {
      for (int64_t i = 0; i < d / 2; ++i) {
        const double power = std::pow(c.rope_theta, 2.0 * static_cast<double>(i) / static_cast<double>(d));
        const double angle = static_cast<float>(position) * (1.0F / static_cast<float>(power));
        double& a = heads[at + i];
        double& b = heads[at + i + d / 2];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned;
      }
    }
  }

  RandomCheckpoint checkpoint_;
  Row embedding_;
  Row norm_;
  std::map<std::string, Row> weights_;
};

inline int32_t likeliest(const Row& logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

// ---- SpeCache in float64 --------------------------------------------------------------------------------------------

/// One layer: C, exact; C', which the codec makes of it; K, what is replaced.
class Layer64 {
 public:
  Layer64(const ModelConfig& config, const Method& codec)
      : c_(config),
        codec_(&codec),
        cache_({.q_heads = c_.q_heads, .kv_heads = c_.kv_heads, .head_dim = c_.head_dim, .dtype = DType::f32},
               std::make_shared<MemoryLedger>()) {}

  void append(const Projected& token) {
    keys_.push_back(token.k);
    values_.push_back(token.v);
    const std::vector<float> k(token.k.begin(), token.k.end());
    const std::vector<float> v(token.v.begin(), token.v.end());
    cache_.append(k.data(), v.data(), 1, c_.kv_heads * c_.head_dim, static_cast<int64_t>(keys_.size()) - 1);
  }
  /// The codec packs what is due.
  void settle() {
    LayerContext context{.layer = 0, .layers = 1, .cache = cache_, .activity = activity_};
    codec_->after_append(context);
    copied_.clear();
    packed_ = cache_.packed().empty() ? 0 : cache_.packed().front()->entries(0);
    for (int64_t h = 0; h < c_.kv_heads && packed_ > 0; ++h) {
      std::vector<float> k(static_cast<size_t>(packed_ * c_.head_dim));
      std::vector<float> v(k.size());
      cache_.packed().front()->read(h, k.data(), v.data());
      copied_.push_back({Row(k.begin(), k.end()), Row(v.begin(), v.end())});
    }
  }

  /// Attn(q, C' union C_K, own): `own` are the step's tokens that the query sees, its own last. With `exact`, Attn(q,
  /// C). `weights` [q_heads][entries and own].
  [[nodiscard]] Row attend(const Row& q, const std::vector<Projected>& own, bool exact, Rows* weights) const {
    const int64_t d = c_.head_dim;
    Row out(q.size());
    for (int64_t h = 0; h < c_.q_heads; ++h) {
      const int64_t g = h / (c_.q_heads / c_.kv_heads);
      Rows k;
      Rows v;
      for (int64_t i = 0; i < entries(); ++i) {
        const bool replaced = !chosen_.empty() && std::ranges::binary_search(chosen_[g], i);
        const bool copy = !exact && i < packed_ && !replaced;
        k.push_back(copy ? part(copied_[g].first, i, d) : part(keys_[i], g, d));
        v.push_back(copy ? part(copied_[g].second, i, d) : part(values_[i], g, d));
      }
      for (const Projected& token : own) {
        k.push_back(part(token.k, g, d));
        v.push_back(part(token.v, g, d));
      }
      Row a(k.size());
      double sum = 0;
      for (size_t i = 0; i < k.size(); ++i) {
        a[i] = std::exp(std::inner_product(k[i].begin(), k[i].end(), q.begin() + h * d, 0.0) /
                        std::sqrt(static_cast<double>(d)));
        sum += a[i];
      }
      for (size_t i = 0; i < k.size(); ++i) {
        a[i] /= sum;
        for (int64_t x = 0; x < d; ++x) out[h * d + x] += a[i] * v[i][x];
      }
      if (weights != nullptr) weights->push_back(a);
    }
    return out;
  }

  /// K = ArgTopK of the group's mean.
  void choose(const Rows& weights, int64_t k) {
    chosen_.clear();
    const int64_t group = c_.q_heads / c_.kv_heads;
    for (int64_t g = 0; g < c_.kv_heads; ++g) {
      std::vector<std::pair<double, int64_t>> ranked;
      for (int64_t i = 0; i < packed_; ++i) {
        double score = 0;
        for (int64_t h = g * group; h < (g + 1) * group; ++h) score -= weights[h][i];
        ranked.emplace_back(score, i);
      }
      std::ranges::sort(ranked);
      std::vector<int64_t>& list = chosen_.emplace_back();
      for (int64_t i = 0; i < std::min<int64_t>(k, packed_); ++i) list.push_back(ranked[i].second);
      std::ranges::sort(list);
    }
  }
  void choose_none() { chosen_.clear(); }
  [[nodiscard]] int64_t entries() const { return static_cast<int64_t>(keys_.size()); }

 private:
  static Row part(const Row& row, int64_t index, int64_t d) {
    return {row.begin() + index * d, row.begin() + (index + 1) * d};
  }

  const ModelConfig& c_;
  const Method* codec_;
  LayerCache cache_;
  Activity activity_;
  Rows keys_;  // [entries][kv_heads * head_dim]
  Rows values_;
  std::vector<std::pair<Row, Row>> copied_;  // [kv_heads], keys and values [packed, head_dim]
  int64_t packed_ = 0;
  std::vector<std::vector<int64_t>> chosen_;  // [kv_heads]
};

struct Expected {
  std::vector<int32_t> tokens;
  Rows logits;
};

class SpeCache64 {
 public:
  SpeCache64(const Model64& model, const Method& codec, int64_t k) : m_(model), k_(k) {
    for (int64_t layer = 0; layer < m_.c.layers; ++layer) layers_.emplace_back(m_.c, codec);
  }

  Expected speculative(const std::vector<int32_t>& prompt, int64_t steps) {
    Expected result = prefill(prompt);
    int32_t guess = likeliest(feed({result.tokens.back()}, Mode::pre_decode).back());
    for (int64_t step = 1; step < steps; ++step) {
      const Rows logits = feed({result.tokens.back(), guess}, Mode::decode);
      result.logits.push_back(logits[0]);
      result.tokens.push_back(likeliest(logits[0]));
      guess = likeliest(logits[1]);
    }
    return result;
  }
  Expected recomputing(const std::vector<int32_t>& prompt, int64_t steps) {
    Expected result = prefill(prompt);
    for (int64_t step = 1; step < steps; ++step) {
      result.logits.push_back(feed({result.tokens.back()}, Mode::recompute)[0]);
      result.tokens.push_back(likeliest(result.logits.back()));
    }
    return result;
  }

 private:
  enum class Mode { prompt, pre_decode, decode, recompute };

  /// Algorithm 1.
  Expected prefill(const std::vector<int32_t>& prompt) {
    Row logits;
    for (const int32_t token : prompt) logits = feed({token}, Mode::prompt)[0];
    for (Layer64& layer : layers_) layer.settle();
    return {.tokens = {likeliest(logits)}, .logits = {logits}};
  }

  /// One pass; algorithm 2 with one token, algorithm 3 with two.
  Rows feed(const std::vector<int32_t>& tokens, Mode mode) {
    Rows x;
    for (const int32_t token : tokens) x.push_back(m_.embed(token));
    for (int64_t l = 0; l < m_.c.layers; ++l) {
      Layer64& layer = layers_[l];
      const int64_t n = layer.entries();
      std::vector<Projected> own;
      Rows last;  // attention of the pass's last row
      for (size_t t = 0; t < tokens.size(); ++t) {
        own.push_back(m_.project(l, x[t], n + static_cast<int64_t>(t)));
        last.clear();
        Row attended = layer.attend(own[t].q, own, mode == Mode::prompt, &last);
        if (mode == Mode::recompute) {
          layer.choose(last, k_);
          attended = layer.attend(own[t].q, own, false, nullptr);
          layer.choose_none();
        }
        x[t] = m_.finish(l, std::move(x[t]), attended);
      }
      if (mode != Mode::pre_decode) layer.append(own[0]);
      if (mode != Mode::prompt) layer.settle();
      if (mode == Mode::pre_decode || mode == Mode::decode) layer.choose(last, k_);
    }
    Rows logits;
    for (const Row& row : x) logits.push_back(m_.logits(row));
    return logits;
  }

  const Model64& m_;
  int64_t k_;
  std::vector<Layer64> layers_;
};

}  // namespace kvarena::testing
