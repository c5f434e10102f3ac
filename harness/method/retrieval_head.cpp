#include "harness/method/retrieval_head.h"

#include <algorithm>

#include "harness/core/error.h"
#include "harness/method/drafter_file.h"
#include "harness/method/row_ops.h"
#include "kernels/elementwise/elementwise.h"

namespace kvarena {
namespace {

constexpr int64_t kDrafterWindow = 2048;  // EAGLE-3 drafters are trained on so many positions

}  // namespace

const std::vector<std::string>& retrieval_head_tensors() {
  static const std::vector<std::string> names = {"q_proj.weight", "k_proj.weight", "input_layernorm.weight",
                                                 "hidden_norm.weight", "fc.weight"};
  return names;
}

RetrievalHead::RetrievalHead(const FittedWeights& weights, const ModelFacts& model, const Options& options)
    : hidden_size_(model.hidden_size), eps_(static_cast<float>(model.norm_eps)) {
  if (DrafterFile(weights).find("q_proj.weight") != nullptr) {
    read_drafter(weights, options.features);
  } else {
    if (options.features) {
      fail({.place = weights.place,
            .found = "a head that reads embeddings alone",
            .expected = "an EAGLE-3 drafter for \"feature\": \"previous\"",
            .action = "write \"feature\": \"zero\""});
    }
    read_artifact(weights, model.rope_theta);
  }
  const double reach = static_cast<double>(model.window) / static_cast<double>(window_);
  rotation_ = model.rotary({.head_dim = head_dim_,
                            .theta = theta_,
                            .window = window_,
                            .factor = options.yarn > 0 ? options.yarn : std::max(1.0, reach)});
}

void RetrievalHead::read_artifact(const FittedWeights& weights, double theta) {
  const FittedTensor& q = weights.at("q", {-1, -1, hidden_size_});
  q_heads_ = q.shape[0];
  head_dim_ = q.shape[1];
  const FittedTensor& k = weights.at("k", {-1, head_dim_, hidden_size_});
  kv_heads_ = k.shape[0];
  theta_ = theta;
  window_ = static_cast<int64_t>(weights.at("window", {1}).values[0]);
  token_ = {.q = pack_exactly(q.values.data(), q_heads_ * head_dim_, hidden_size_, hidden_size_),
            .k = pack_exactly(k.values.data(), kv_heads_ * head_dim_, hidden_size_, hidden_size_),
            .norm = std::vector<float>(static_cast<size_t>(hidden_size_), 1.0F)};
}

void RetrievalHead::read_drafter(const FittedWeights& weights, bool features) {
  const DrafterFile file(weights);
  q_heads_ = file.count("num_attention_heads");
  kv_heads_ = static_cast<int64_t>(file.number("num_key_value_heads").value_or(static_cast<double>(q_heads_)));
  const int64_t inputs = 2 * hidden_size_;
  const FittedTensor& q = file.tensor("q_proj.weight", {-1, inputs});
  head_dim_ = static_cast<int64_t>(file.number("head_dim").value_or(static_cast<double>(q.shape[0] / q_heads_)));
  (void)file.tensor("q_proj.weight", {q_heads_ * head_dim_, inputs});
  const FittedTensor& k = file.tensor("k_proj.weight", {kv_heads_ * head_dim_, inputs});
  theta_ = file.number("rope_theta").value_or(10000.0);
  window_ = static_cast<int64_t>(file.number("max_position_embeddings").value_or(static_cast<double>(kDrafterWindow)));
  eps_ = static_cast<float>(file.number("rms_norm_eps").value_or(static_cast<double>(eps_)));
  const auto half = [&](int64_t first, const char* norm) {
    return Half{.q = pack_exactly(q.values.data() + first, q_heads_ * head_dim_, hidden_size_, inputs),
                .k = pack_exactly(k.values.data() + first, kv_heads_ * head_dim_, hidden_size_, inputs),
                .norm = file.tensor(norm, {hidden_size_}).values};
  };
  token_ = half(0, "input_layernorm.weight");
  if (!features) return;
  if (file.flag("norm_before_fc")) {
    fail({.place = file.place("norm_before_fc"),
          .found = "true",
          .expected = "a drafter that norms features behind fc",
          .action = "write \"feature\": \"zero\""});
  }
  feature_ = half(hidden_size_, "hidden_norm.weight");
  const FittedTensor& fc = file.tensor("fc.weight", {hidden_size_, feature_size()});
  fc_ = pack_exactly(fc.values.data(), hidden_size_, feature_size(), feature_size());
}

int64_t RetrievalHead::weight_bytes() const {
  return token_.q.bytes() + token_.k.bytes() + feature_.q.bytes() + feature_.k.bytes() + fc_.bytes();
}

void RetrievalHead::add_half(const kernels::PackedMatrix& w, const std::vector<float>& in, int64_t count,
                             float* out) const {
  std::vector<float> y(static_cast<size_t>(count * w.n()));
  kernels::matmul({.x = in.data(), .m = count, .x_stride = hidden_size_, .w = &w, .y = y.data(), .y_stride = w.n()});
  kernels::add_into(out, y.data(), count * w.n());
}

void RetrievalHead::rotate(float* x, int64_t count, int64_t heads, int64_t position) const {
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < count; ++i) positions.push_back(static_cast<int32_t>(position + i));
  rotate_rows(x, heads, head_dim_, rotation_.inverse, rotation_.magnitude, positions);
}

void RetrievalHead::project(const float* embeddings, const float* features, int64_t count, int64_t position, float* q,
                            float* k) const {
  const std::vector<float> token = normed_rows(embeddings, count, token_.norm, eps_);
  std::vector<float> feature;
  if (features != nullptr && reads_features()) {
    std::vector<float> fused(static_cast<size_t>(count * hidden_size_));
    kernels::matmul({.x = features,
                     .m = count,
                     .x_stride = feature_size(),
                     .w = &fc_,
                     .y = fused.data(),
                     .y_stride = hidden_size_});
    feature = normed_rows(fused.data(), count, feature_.norm, eps_);
  }
  const auto run = [&](const kernels::PackedMatrix& w, const kernels::PackedMatrix& w_feature, int64_t heads,
                       float* out) {
    std::fill_n(out, count * heads * head_dim_, 0.0F);
    add_half(w, token, count, out);
    if (!feature.empty()) add_half(w_feature, feature, count, out);
    rotate(out, count, heads, position);
  };
  if (q != nullptr) run(token_.q, feature_.q, q_heads_, q);
  if (k != nullptr) run(token_.k, feature_.k, kv_heads_, k);
}

}  // namespace kvarena
