#include "harness/method/draft_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/cache/attend_plan.h"
#include "harness/cache/indexed_segment.h"
#include "harness/core/error.h"
#include "harness/method/drafter_file.h"
#include "harness/method/row_ops.h"
#include "kernels/elementwise/elementwise.h"

namespace kvarena {
namespace {

constexpr int64_t kDrafterWindow = 2048;  // EAGLE-3 drafters are trained on so many positions

kernels::PackedMatrix packed(const FittedTensor& tensor) {
  return pack_exactly(tensor.values.data(), tensor.shape[0], tensor.shape[1], tensor.shape[1]);
}

/// y [count, w.n] = w x.
std::vector<float> product(const kernels::PackedMatrix& w, const float* x, int64_t count) {
  std::vector<float> y(static_cast<size_t>(count * w.n()));
  kernels::matmul({.x = x, .m = count, .x_stride = w.k(), .w = &w, .y = y.data(), .y_stride = w.n()});
  return y;
}

}  // namespace

const std::vector<std::string>& draft_head_tensors() {
  static const std::vector<std::string> names = {"q_proj.weight",
                                                 "k_proj.weight",
                                                 "v_proj.weight",
                                                 "o_proj.weight",
                                                 "gate_proj.weight",
                                                 "up_proj.weight",
                                                 "down_proj.weight",
                                                 "norm.weight",
                                                 "fc.weight",
                                                 "lm_head.weight",
                                                 "d2t"};
  return names;
}

DraftHead::DraftHead(const FittedWeights& weights, const ModelFacts& model, double yarn, DType cache)
    : hidden_size_(model.hidden_size), eps_(static_cast<float>(model.norm_eps)), shape_{.dtype = cache} {
  const DrafterFile file(weights);
  const bool artifact = file.find("heads") != nullptr;
  for (const char* key : {"norm_before_fc", "attention_bias"}) {
    if (file.flag(key)) fail({.place = file.place(key), .found = "true", .expected = "false: such heads are not read"});
  }
  norm_before_residual_ = file.flag("norm_before_residual");
  const double theta = artifact ? model.rope_theta : file.number("rope_theta").value_or(10000.0);
  const auto window =
      static_cast<int64_t>(file.number("max_position_embeddings").value_or(static_cast<double>(kDrafterWindow)));
  if (!artifact) eps_ = static_cast<float>(file.number("rms_norm_eps").value_or(static_cast<double>(eps_)));
  fc_ = packed(file.tensor("fc.weight", {hidden_size_, feature_size()}));
  read_attention(weights);
  rotation_ = model.rotary({.head_dim = shape_.head_dim, .theta = theta, .window = window, .factor = yarn});
  const FittedTensor& gate = file.tensor("gate_proj.weight", {-1, hidden_size_});
  gate_ = packed(gate);
  up_ = packed(file.tensor("up_proj.weight", gate.shape));
  down_ = packed(file.tensor("down_proj.weight", {hidden_size_, gate.shape[0]}));
  token_norm_ = file.tensor("input_layernorm.weight", {hidden_size_}).values;
  feature_norm_ = file.tensor("hidden_norm.weight", {hidden_size_}).values;
  mlp_norm_ = file.tensor("post_attention_layernorm.weight", {hidden_size_}).values;
  final_norm_ = weights.at("norm.weight", {hidden_size_}).values;
  read_vocabulary(weights, model.vocab_size);
}

void DraftHead::read_attention(const FittedWeights& weights) {
  const DrafterFile file(weights);
  const FittedTensor& q = file.tensor("q_proj.weight", {-1, 2 * hidden_size_});
  const FittedTensor& k = file.tensor("k_proj.weight", {-1, 2 * hidden_size_});
  const FittedTensor* heads = file.find("heads");
  shape_.q_heads = heads != nullptr ? static_cast<int64_t>(heads->values[0]) : file.count("num_attention_heads");
  shape_.head_dim = q.shape[0] / shape_.q_heads;
  if (const auto stated = file.number("head_dim")) shape_.head_dim = static_cast<int64_t>(*stated);
  if (shape_.head_dim % kernels::kCell != 0 || q.shape[0] != shape_.q_heads * shape_.head_dim ||
      k.shape[0] % shape_.head_dim != 0) {
    fail({.place = weights.place,
          .found = fmt::format("q_proj [{}, ...] and k_proj [{}, ...] for {} heads of {}", q.shape[0], k.shape[0],
                               shape_.q_heads, shape_.head_dim),
          .expected = "whole heads whose size is a multiple of 16"});
  }
  shape_.kv_heads = k.shape[0] / shape_.head_dim;
  q_ = packed(q);
  k_ = packed(k);
  v_ = packed(file.tensor("v_proj.weight", k.shape));
  o_ = packed(file.tensor("o_proj.weight", {hidden_size_, q.shape[0]}));
}

void DraftHead::read_vocabulary(const FittedWeights& weights, int64_t vocab_size) {
  const FittedTensor& head = weights.at("lm_head.weight", {-1, hidden_size_});
  const int64_t rows = head.shape[0];
  head_ = packed(head);
  std::vector<int64_t> tokens(static_cast<size_t>(rows));
  std::iota(tokens.begin(), tokens.end(), 0);
  if (weights.has("d2t")) {
    const FittedTensor& shift = weights.at("d2t", {rows});
    for (int64_t id = 0; id < rows; ++id) tokens[id] += static_cast<int64_t>(shift.values[id]);
  } else if (weights.has("t2d")) {
    const FittedTensor& known = weights.at("t2d", {vocab_size});
    tokens.clear();
    for (int64_t id = 0; id < vocab_size; ++id) {
      if (known.values[id] != 0) tokens.push_back(id);
    }
  }
  if (static_cast<int64_t>(tokens.size()) != rows) {
    fail({.place = fmt::format("{}: t2d", weights.place),
          .found = fmt::format("{} tokens", tokens.size()),
          .expected = fmt::format("{}, the rows of lm_head.weight", rows)});
  }
  for (int64_t id = 0; id < rows; ++id) {
    const int64_t token = tokens[id];
    if (token < 0 || token >= vocab_size) {
      fail({.place = fmt::format("{}: d2t[{}]", weights.place, id),
            .found = fmt::format("token {}", token),
            .expected = fmt::format("one of the model's {}", vocab_size),
            .action = "draft with a head that was trained for this model"});
    }
    tokens_.push_back(static_cast<int32_t>(token));
  }
}

int64_t DraftHead::weight_bytes() const {
  int64_t total = 0;
  for (const kernels::PackedMatrix* w : {&fc_, &q_, &k_, &v_, &o_, &gate_, &up_, &down_, &head_}) total += w->bytes();
  return total;
}

void DraftHead::rotate(float* x, int64_t count, int64_t heads, const Rows& rows) const {
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < count; ++i) {
    positions.push_back(static_cast<int32_t>(rows.position + (rows.seen.empty() ? i : 0)));
  }
  rotate_rows(x, heads, shape_.head_dim, rotation_.inverse, rotation_.magnitude, positions);
}

void DraftHead::attend(const std::vector<float>& q, const Rows& rows, LayerCache& cache, float* out) const {
  const int64_t row = shape_.q_heads * shape_.head_dim;
  std::vector<float> running(static_cast<size_t>(2 * rows.count * shape_.q_heads));
  const auto state_of = [&](int64_t first) {
    return kernels::AttentionState{.out = out + first * row,
                                   .max = running.data() + first * shape_.q_heads,
                                   .sum = running.data() + (rows.count + first) * shape_.q_heads};
  };
  kernels::AttentionState all = state_of(0);
  kernels::init_attention(all, rows.count, shape_.q_heads, shape_.head_dim);
  if (rows.seen.empty()) {
    kvarena::attend(cache.plan({.q = q.data(), .q_len = rows.count, .q_stride = row, .position = rows.position}), all);
  } else {
    for (int64_t i = 0; i < rows.count; ++i) {
      const IndexedSegment own(cache.tail(), std::vector(static_cast<size_t>(shape_.kv_heads), rows.seen[i]),
                               cache.ledger());
      kvarena::attend(plan_of(own, {.q = q.data() + i * row, .q_len = 1, .q_stride = row, .position = rows.position}),
                      state_of(i));
    }
  }
  kernels::finish_attention(all, rows.count, shape_.q_heads, shape_.head_dim, nullptr);
}

void DraftHead::fuse(const float* features, int64_t count, float* g) const {
  kernels::matmul({.x = features, .m = count, .x_stride = feature_size(), .w = &fc_, .y = g, .y_stride = hidden_size_});
}

void DraftHead::run(const Rows& rows, LayerCache& cache, float* out) const {
  const int64_t n = rows.count;
  const std::vector<float> e = normed_rows(rows.embeddings, n, token_norm_, eps_);
  const std::vector<float> g = normed_rows(rows.hidden, n, feature_norm_, eps_);
  std::vector<float> x(static_cast<size_t>(2 * n * hidden_size_));
  for (int64_t i = 0; i < n; ++i) {
    std::copy_n(&e[i * hidden_size_], hidden_size_, &x[2 * i * hidden_size_]);
    std::copy_n(&g[i * hidden_size_], hidden_size_, &x[(2 * i + 1) * hidden_size_]);
  }
  std::vector<float> q = product(q_, x.data(), n);
  std::vector<float> k = product(k_, x.data(), n);
  const std::vector<float> v = product(v_, x.data(), n);
  rotate(q.data(), n, shape_.q_heads, rows);
  rotate(k.data(), n, shape_.kv_heads, rows);
  cache.append(k.data(), v.data(), n, shape_.kv_heads * shape_.head_dim, rows.position);
  std::vector<float> attended(q.size());
  attend(q, rows, cache, attended.data());

  std::copy_n(norm_before_residual_ ? g.data() : rows.hidden, n * hidden_size_, out);
  kernels::add_into(out, product(o_, attended.data(), n).data(), n * hidden_size_);
  const std::vector<float> in = normed_rows(out, n, mlp_norm_, eps_);
  std::vector<float> gate = product(gate_, in.data(), n);
  const std::vector<float> up = product(up_, in.data(), n);
  kernels::silu_mul({.gate = gate.data(),
                     .up = up.data(),
                     .out = gate.data(),
                     .rows = n,
                     .n = gate_.n(),
                     .gate_stride = gate_.n(),
                     .up_stride = gate_.n(),
                     .out_stride = gate_.n()});
  kernels::add_into(out, product(down_, gate.data(), n).data(), n * hidden_size_);
}

void DraftHead::predict(const float* out, int64_t count, float* logits) const {
  const std::vector<float> in = normed_rows(out, count, final_norm_, eps_);
  kernels::matmul(
      {.x = in.data(), .m = count, .x_stride = hidden_size_, .w = &head_, .y = logits, .y_stride = draft_vocab()});
}

}  // namespace kvarena
