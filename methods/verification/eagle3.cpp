#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "harness/method/draft_head.h"
#include "harness/method/layer_view.h"
#include "harness/method/tensors.h"
#include "harness/method/verifier.h"

namespace kvarena {
namespace {

const std::vector<std::pair<Tap, const char*>>& features() {
  static const std::vector<std::pair<Tap, const char*>> names = {
      {Tap::low, "low"}, {Tap::middle, "middle"}, {Tap::high, "high"}};
  return names;
}

at::Tensor long_of(const FittedTensor& tensor) { return tensor_of(tensor).to(at::kLong); }

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * (x.square().mean(-1, true) + eps).rsqrt() * weight;
}

/// Learns a head on the model's own predictions of texts, fed with its own output as it will be when it drafts
/// (training-time test, section 3.2): of step k the loss counts 0.8^k. The draft vocabulary is what the model predicts
/// most in these texts.
class HeadTrainer final : public Fitter {
 public:
  FittedRequest artifact() const override {
    return {.method = "eagle3", .variant = {}, .path = {}, .wanted = draft_head_tensors()};
  }
  Needs needs() const override { return {.taps = {Tap::low, Tap::middle, Tap::high, Tap::last}}; }
  int64_t sample_tokens() const override { return kTokens; }
  bool half() const override { return true; }
  bool joint() const override { return true; }

  /// Records the residual stream of a tapped layer, and of the last layer the likeliest tokens that the model predicts,
  /// [n, kLikely].
  FittedTensors collect(const LayerView& layer, const RandomStream& /*draws*/) const override {
    FittedTensors record;
    for (const auto& [tap, name] : features()) {
      if (tapped_layer(tap, layer.layers()) == layer.layer()) record[name] = weight_of(layer.residual());
    }
    if (layer.layer() + 1 < layer.layers()) return record;
    add_predictions(layer, record);
    add_embeddings(layer, record);
    const ModelFacts& model = layer.model();
    const Rotation rotation = model.rotary({.head_dim = layer.head_dim(), .theta = model.rope_theta});
    record["inverse"] = weight_of(at::tensor(rotation.inverse).to(at::kFloat));
    record["shape"] = weight_of(at::tensor({static_cast<double>(layer.q_heads()), static_cast<double>(layer.kv_heads()),
                                            model.norm_eps, static_cast<double>(model.vocab_size)}));
    return record;
  }
  FittedTensors join(std::vector<FittedTensors> layers) const override {
    FittedTensors all;
    for (FittedTensors& layer : layers) all.merge(layer);
    std::vector<at::Tensor> taps;
    for (const auto& [tap, name] : features()) taps.push_back(tensor_of(all.at(name)));
    all["features"] = weight_of(at::cat(taps, 1));
    for (const auto& [tap, name] : features()) all.erase(name);
    return all;
  }

  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& draws) const override {
    const std::vector<int64_t> vocabulary = frequent(records);
    const std::vector<Text> texts = texts_of(records, vocabulary);
    std::vector<at::Tensor> p = first_weights(records, vocabulary, draws);
    const Descent how{.epochs = kEpochs, .batch = 1, .learning_rate = 1e-3, .weight_decay = 0.01};
    descend(p, static_cast<int64_t>(texts.size()), how, draws,
            [&](const at::Tensor& which) { return loss(p, texts[static_cast<size_t>(which[0].item<int64_t>())]); });
    FittedTensors weights;
    for (size_t i = 0; i < p.size(); ++i) weights[kNames[i]] = weight_of(p[i]);
    weights["heads"] = weight_of(tensor_of(records.front().at("shape")).narrow(0, 0, 1));
    at::Tensor known = at::zeros({static_cast<int64_t>(tensor_of(records.front().at("shape"))[3].item<double>())});
    known.index_fill_(0, at::tensor(vocabulary), 1);
    weights["t2d"] = weight_of(known);
    return weights;
  }
  FittedTensors assemble(const std::vector<FittedTensors>& layers) const override { return layers.front(); }

 private:
  static constexpr int64_t kTokens = 512;
  static constexpr int64_t kLikely = 16;  // predicted tokens that are learned from
  static constexpr int64_t kVocabulary = 2048;
  static constexpr int64_t kSteps = 3;  // that the head is fed with its own rows, the first included
  static constexpr int64_t kEpochs = 8;
  static constexpr double kDecay = 0.8;  // of the loss from step to step

  enum Weight : size_t { fc, q, k, v, o, gate, up, down, token_norm, feature_norm, mlp_norm, final_norm, head };
  static constexpr std::array kNames = {"fc.weight",
                                        "midlayer.self_attn.q_proj.weight",
                                        "midlayer.self_attn.k_proj.weight",
                                        "midlayer.self_attn.v_proj.weight",
                                        "midlayer.self_attn.o_proj.weight",
                                        "midlayer.mlp.gate_proj.weight",
                                        "midlayer.mlp.up_proj.weight",
                                        "midlayer.mlp.down_proj.weight",
                                        "midlayer.input_layernorm.weight",
                                        "midlayer.hidden_norm.weight",
                                        "midlayer.post_attention_layernorm.weight",
                                        "norm.weight",
                                        "lm_head.weight"};

  struct Text {
    at::Tensor features;    // [n, 3 * hidden_size]
    at::Tensor embeddings;  // [n, hidden_size]
    at::Tensor target;      // [n, kLikely], draft ids
    at::Tensor weight;      // [n, kLikely], probabilities within the draft vocabulary; 0 where it lacks the likeliest
    at::Tensor inverse;     // [head_dim / 2]
    int64_t q_heads = 0;
    int64_t kv_heads = 0;
    double eps = 0;
  };

  static void add_predictions(const LayerView& layer, FittedTensors& record) {
    const at::Tensor rows = layer.residual().contiguous();
    const ModelFacts& model = layer.model();
    const int64_t likely = std::min(kLikely, model.vocab_size);
    constexpr int64_t kRows = 64;  // predicted at once
    std::vector<at::Tensor> ids;
    std::vector<at::Tensor> shares;
    for (int64_t first = 0; first < rows.size(0); first += kRows) {
      const at::Tensor part = rows.narrow(0, first, std::min(kRows, rows.size(0) - first)).contiguous();
      at::Tensor logits = at::empty({part.size(0), model.vocab_size});
      model.predict(part.data_ptr<float>(), part.size(0), logits.data_ptr<float>());
      const auto [share, id] = at::softmax(logits, -1).topk(likely);
      ids.push_back(id.to(at::kFloat));  // exact: a vocabulary is far below 2^24
      shares.push_back(share);
    }
    record["likely"] = weight_of(at::cat(ids));
    record["shares"] = weight_of(at::cat(shares));
  }

  /// ids [m], their embeddings [m, hidden_size], and the text as places among them, [n].
  static void add_embeddings(const LayerView& layer, FittedTensors& record) {
    std::map<int32_t, int64_t> places;
    for (const int32_t token : layer.tokens()) places.emplace(token, 0);
    const at::Tensor first = tensor_of(record.at("likely")).select(1, 0).contiguous();
    for (int64_t i = 0; i < first.numel(); ++i) places.emplace(static_cast<int32_t>(first.data_ptr<float>()[i]), 0);
    std::vector<int32_t> ids;
    for (auto& [id, place] : places) {
      place = static_cast<int64_t>(ids.size());
      ids.push_back(id);
    }
    at::Tensor rows = at::empty({static_cast<int64_t>(ids.size()), layer.model().hidden_size});
    layer.model().embed(ids, rows.data_ptr<float>());
    FittedTensor text{.shape = {layer.n()}, .values = {}};
    for (const int32_t token : layer.tokens()) text.values.push_back(static_cast<float>(places.at(token)));
    record["ids"] = {.shape = {static_cast<int64_t>(ids.size())}, .values = {ids.begin(), ids.end()}};
    record["rows"] = weight_of(rows);
    record["text"] = std::move(text);
  }

  /// The tokens that are predicted most often, ascending.
  static std::vector<int64_t> frequent(const std::vector<FittedTensors>& records) {
    std::map<int64_t, int64_t> counts;
    for (const FittedTensors& record : records) {
      const at::Tensor first = long_of(record.at("likely")).select(1, 0).contiguous();
      for (int64_t i = 0; i < first.numel(); ++i) ++counts[first.data_ptr<int64_t>()[i]];
    }
    std::vector<std::pair<int64_t, int64_t>> order;  // of -count and id
    for (const auto& [id, count] : counts) order.emplace_back(-count, id);
    std::ranges::sort(order);
    order.resize(std::min<size_t>(order.size(), kVocabulary));
    std::vector<int64_t> vocabulary;
    for (const auto& [count, id] : order) vocabulary.push_back(id);
    std::ranges::sort(vocabulary);
    return vocabulary;
  }

  static std::vector<Text> texts_of(const std::vector<FittedTensors>& records, const std::vector<int64_t>& vocabulary) {
    std::vector<Text> texts;
    const at::Tensor known = at::tensor(vocabulary);
    for (const FittedTensors& record : records) {
      const at::Tensor likely = long_of(record.at("likely"));
      const at::Tensor place = at::searchsorted(known, likely).clamp_max(known.numel() - 1);
      const at::Tensor there = known.index_select(0, place.flatten()).view_as(likely).eq(likely);
      at::Tensor weight = tensor_of(record.at("shares")) * there * there.narrow(1, 0, 1);
      weight = weight / weight.sum(1, true).clamp_min(1e-9);
      const at::Tensor shape = tensor_of(record.at("shape"));
      texts.push_back({.features = tensor_of(record.at("features")),
                       .embeddings = tensor_of(record.at("rows")).index_select(0, long_of(record.at("text"))),
                       .target = place,
                       .weight = weight,
                       .inverse = tensor_of(record.at("inverse")),
                       .q_heads = shape[0].item<int64_t>(),
                       .kv_heads = shape[1].item<int64_t>(),
                       .eps = shape[2].item<double>()});
    }
    return texts;
  }

  /// Uniform by fan-in, norms of 1, and a head that starts from the tokens' embeddings.
  static std::vector<at::Tensor> first_weights(const std::vector<FittedTensors>& records,
                                               const std::vector<int64_t>& vocabulary, const RandomStream& draws) {
    const at::Tensor shape = tensor_of(records.front().at("shape"));
    const int64_t hidden = records.front().at("rows").shape[1];
    const int64_t dim = 2 * records.front().at("inverse").shape[0];
    const int64_t queries = shape[0].item<int64_t>() * dim;
    const int64_t keys = shape[1].item<int64_t>() * dim;
    const int64_t inner = 2 * hidden;
    std::vector<at::Tensor> p;
    const std::vector<std::array<int64_t, 2>> sizes = {{hidden, 3 * hidden}, {queries, 2 * hidden}, {keys, 2 * hidden},
                                                       {keys, 2 * hidden},   {hidden, queries},     {inner, hidden},
                                                       {inner, hidden},      {hidden, inner}};
    for (const auto& size : sizes) {
      const double bound = 1 / std::sqrt(static_cast<double>(size[1]));
      p.push_back(draw_uniform(size, bound, draws, static_cast<int64_t>(p.size() + 1) << 32));
    }
    for (size_t norm = token_norm; norm <= final_norm; ++norm) p.push_back(at::ones({hidden}));
    std::map<int64_t, at::Tensor> rows;
    for (const FittedTensors& record : records) {
      const at::Tensor own = tensor_of(record.at("rows"));
      for (size_t i = 0; i < record.at("ids").values.size(); ++i) {
        rows.emplace(static_cast<int64_t>(record.at("ids").values[i]), own[static_cast<int64_t>(i)]);
      }
    }
    std::vector<at::Tensor> chosen;
    for (const int64_t id : vocabulary) chosen.push_back(rows.at(id));
    p.push_back(at::stack(chosen));
    return p;
  }

  /// Keys or values for every query head, [q_heads, rows, dim].
  static at::Tensor heads_of(const at::Tensor& x, int64_t heads, int64_t q_heads, const at::Tensor& positions,
                             const at::Tensor* inverse) {
    at::Tensor rows = x.view({x.size(0), heads, -1});
    if (inverse != nullptr) rows = rotated(rows, positions, *inverse);
    return rows.transpose(0, 1).repeat_interleave(q_heads / heads, 0);
  }

  static at::Tensor loss(const std::vector<at::Tensor>& p, const Text& text) {
    const int64_t n = text.features.size(0);
    at::Tensor hidden = at::linear(text.features.narrow(0, 0, n - 1), p[fc]);
    std::vector<at::Tensor> keys;    // of every step, [q_heads, rows, dim]
    std::vector<at::Tensor> values;  // row i of step s stands behind row i of step s - 1
    at::Tensor total = at::zeros({});
    const int64_t steps = std::min(kSteps, n - 1);
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t rows = n - 1 - step;
      hidden = hidden.narrow(0, 0, rows);
      const at::Tensor e = rms_norm(text.embeddings.narrow(0, 1 + step, rows), p[token_norm], text.eps);
      const at::Tensor x = at::cat({e, rms_norm(hidden, p[feature_norm], text.eps)}, 1);
      const at::Tensor at_rows = at::arange(step, step + rows, at::kFloat);
      keys.push_back(heads_of(at::linear(x, p[k]), text.kv_heads, text.q_heads, at_rows, &text.inverse));
      values.push_back(heads_of(at::linear(x, p[v]), text.kv_heads, text.q_heads, at_rows, nullptr));
      const at::Tensor query = heads_of(at::linear(x, p[q]), text.q_heads, text.q_heads, at_rows, &text.inverse);
      hidden = hidden + at::linear(attended(query, keys, values), p[o]);
      const at::Tensor in = rms_norm(hidden, p[mlp_norm], text.eps);
      hidden = hidden + at::linear(at::silu(at::linear(in, p[gate])) * at::linear(in, p[up]), p[down]);
      const at::Tensor logits = at::linear(rms_norm(hidden, p[final_norm], text.eps), p[head]);
      const at::Tensor likelihood = at::log_softmax(logits, -1).gather(1, text.target.narrow(0, 1 + step, rows));
      total = total - std::pow(kDecay, step) * (likelihood * text.weight.narrow(0, 1 + step, rows)).sum(1).mean();
    }
    return total;
  }

  /// A row sees the first step's rows up to its own place, and of later steps the one in its own place.
  static at::Tensor attended(const at::Tensor& query, const std::vector<at::Tensor>& keys,
                             const std::vector<at::Tensor>& values) {
    const int64_t rows = query.size(1);
    const double scale = 1 / std::sqrt(static_cast<double>(query.size(2)));
    const at::Tensor hidden_ones = at::ones({rows, keys[0].size(1)}, at::kBool).triu(1);
    std::vector<at::Tensor> scores = {
        at::matmul(query, keys[0].transpose(1, 2)).masked_fill(hidden_ones, -std::numeric_limits<float>::infinity())};
    for (size_t step = 1; step < keys.size(); ++step) {
      scores.push_back((query * keys[step].narrow(1, 0, rows)).sum(-1, true));
    }
    const at::Tensor share = at::softmax(at::cat(scores, 2) * scale, -1);
    at::Tensor out = at::matmul(share.narrow(2, 0, keys[0].size(1)), values[0]);
    for (size_t step = 1; step < keys.size(); ++step) {
      const int64_t column = keys[0].size(1) + static_cast<int64_t>(step) - 1;
      out = out + share.narrow(2, column, 1) * values[step].narrow(1, 0, rows);
    }
    return out.transpose(0, 1).reshape({rows, -1});
  }
};

/// A one-layer head drafts from the target's residual stream at three depths, and then from what it puts out itself.
/// `kvarena fit eagle3` makes one for any model, with --from of a published checkpoint (config.json, model.safetensors)
/// of that model. Drafts are a tree that grows by its likeliest paths (EAGLE-2), as large as the authors' by default:
/// 60 tokens with the newest, 7 steps behind the first. Above temperature 0 a tree's draft is accepted where it equals
/// the token that is drawn; the authors try its drafts one by one against the probabilities, which has the same
/// distribution. Li et al. 2025, arXiv:2503.01840; SafeAILab/EAGLE.
class Eagle3 final : public Verifier {
 public:
  void parameters(ParameterVisitor& p) override {
    p("draft_length", draft_length_).min(1).doc("tokens drafted before each verification, of a tree its depth");
    p("top_k", top_k_).min(1).doc("paths of the tree that go on at each depth, each by so many tokens; 1 = a chain");
    p("tree_tokens", tree_tokens_).min(1).doc("drafts that are verified of a tree, those with the likeliest paths");
    p("weights", weights_).doc("file of a fitted or imported head; empty = the project's for the model");
    p("yarn", yarn_).min(1).doc("YaRN's factor on the window that the drafter was trained on; 1 = none");
  }
  int64_t draft_length() const override { return draft_length_; }
  Drafter drafter() const override {
    FittedRequest weights = HeadTrainer().artifact();
    weights.path = weights_;
    return DraftingHead{.weights = std::move(weights), .yarn = yarn_, .beams = top_k_, .tree_tokens = tree_tokens_};
  }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<HeadTrainer>(); }

 private:
  int64_t draft_length_ = 8;
  int64_t top_k_ = 10;
  int64_t tree_tokens_ = 59;
  std::string weights_;
  double yarn_ = 1;
};

KVARENA_VERIFIER(Eagle3,
                 {.name = "eagle3",
                  .title = "EAGLE-3",
                  .summary = "A one-layer head on the target's features drafts and the target verifies: lossless.",
                  .paper = "arXiv:2503.01840"});

}  // namespace
}  // namespace kvarena
