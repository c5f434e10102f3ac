#include "harness/method/retrieval_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "harness/core/error.h"
#include "kernels/common/dtype.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/rope/rope.h"

namespace kvarena {
namespace {

constexpr int64_t kDrafterWindow = 2048;  // EAGLE-3 drafters are trained on so many positions

/// Packed in 16 bits when that loses nothing.
kernels::PackedMatrix pack(const float* rows, int64_t n, int64_t k, int64_t stride) {
  bool exact = true;
  for (int64_t row = 0; row < n && exact; ++row) {
    exact = std::all_of(rows + row * stride, rows + row * stride + k,
                        [](float value) { return kernels::bf16_to_f32(kernels::f32_to_bf16(value)) == value; });
  }
  kernels::PackedMatrix packed(n, k, exact ? kernels::DType::bf16 : kernels::DType::f32);
  packed.pack_rows(0, n, rows, stride);
  return packed;
}

/// The one tensor whose name ends so.
const FittedTensor* find_tensor(const FittedWeights& weights, std::string_view ending) {
  for (const auto& [name, tensor] : weights.tensors) {
    if (name.ends_with(ending)) return &tensor;
  }
  return nullptr;
}

const FittedTensor& tensor_called(const FittedWeights& weights, std::string_view ending,
                                  const std::vector<int64_t>& shape) {
  for (const auto& [name, tensor] : weights.tensors) {
    if (name.ends_with(ending)) return weights.at(name, shape);
  }
  return weights.at(ending, shape);  // throws
}

/// A number of a drafter's config, which some publish with the layer's own settings in an object of their own.
std::optional<double> config_number(const FittedWeights& weights, const std::string& key) {
  for (const std::string& name : {key, "transformer_layer_config." + key}) {
    const auto found = weights.metadata.find(name);
    if (found == weights.metadata.end() || found->second == "null") continue;
    double value = 0;
    const char* end = found->second.data() + found->second.size();
    if (std::from_chars(found->second.data(), end, value).ptr == end) return value;
    fail({.place = fmt::format("{}/config.json: {}", weights.place, name),
          .found = found->second,
          .expected = "a number"});
  }
  return std::nullopt;
}

int64_t config_count(const FittedWeights& weights, const std::string& key) {
  const auto value = config_number(weights, key);
  if (!value || *value < 1) {
    fail({.place = fmt::format("{}/config.json", weights.place),
          .found = fmt::format("no {} that counts", key),
          .expected = "the config of an EAGLE-3 drafter"});
  }
  return static_cast<int64_t>(*value);
}

}  // namespace

const std::vector<std::string>& retrieval_head_tensors() {
  static const std::vector<std::string> names = {"q_proj.weight", "k_proj.weight", "input_layernorm.weight",
                                                 "hidden_norm.weight", "fc.weight"};
  return names;
}

RetrievalHead::RetrievalHead(const FittedWeights& weights, const ModelFacts& model, const Options& options)
    : hidden_size_(model.hidden_size), eps_(static_cast<float>(model.norm_eps)) {
  if (find_tensor(weights, "q_proj.weight") != nullptr) {
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
  token_ = {.q = pack(q.values.data(), q_heads_ * head_dim_, hidden_size_, hidden_size_),
            .k = pack(k.values.data(), kv_heads_ * head_dim_, hidden_size_, hidden_size_),
            .norm = std::vector<float>(static_cast<size_t>(hidden_size_), 1.0F)};
}

void RetrievalHead::read_drafter(const FittedWeights& weights, bool features) {
  q_heads_ = config_count(weights, "num_attention_heads");
  kv_heads_ =
      static_cast<int64_t>(config_number(weights, "num_key_value_heads").value_or(static_cast<double>(q_heads_)));
  const int64_t inputs = 2 * hidden_size_;
  const FittedTensor& q = tensor_called(weights, "q_proj.weight", {-1, inputs});
  head_dim_ =
      static_cast<int64_t>(config_number(weights, "head_dim").value_or(static_cast<double>(q.shape[0] / q_heads_)));
  (void)tensor_called(weights, "q_proj.weight", {q_heads_ * head_dim_, inputs});
  const FittedTensor& k = tensor_called(weights, "k_proj.weight", {kv_heads_ * head_dim_, inputs});
  theta_ = config_number(weights, "rope_theta").value_or(10000.0);
  window_ = static_cast<int64_t>(
      config_number(weights, "max_position_embeddings").value_or(static_cast<double>(kDrafterWindow)));
  eps_ = static_cast<float>(config_number(weights, "rms_norm_eps").value_or(static_cast<double>(eps_)));
  const auto half = [&](int64_t first, const char* norm) {
    return Half{.q = pack(q.values.data() + first, q_heads_ * head_dim_, hidden_size_, inputs),
                .k = pack(k.values.data() + first, kv_heads_ * head_dim_, hidden_size_, inputs),
                .norm = tensor_called(weights, norm, {hidden_size_}).values};
  };
  token_ = half(0, "input_layernorm.weight");
  if (!features) return;
  const auto before_fc = weights.metadata.find("norm_before_fc");
  if (before_fc != weights.metadata.end() && before_fc->second == "true") {
    fail({.place = fmt::format("{}/config.json: norm_before_fc", weights.place),
          .found = "true",
          .expected = "a drafter that norms features behind fc",
          .action = "write \"feature\": \"zero\""});
  }
  feature_ = half(hidden_size_, "hidden_norm.weight");
  const FittedTensor& fc = tensor_called(weights, "fc.weight", {hidden_size_, feature_size()});
  fc_ = pack(fc.values.data(), hidden_size_, feature_size(), feature_size());
}

int64_t RetrievalHead::weight_bytes() const {
  return token_.q.bytes() + token_.k.bytes() + feature_.q.bytes() + feature_.k.bytes() + fc_.bytes();
}

std::vector<float> RetrievalHead::normed(const float* x, int64_t count, const std::vector<float>& norm) const {
  std::vector<float> y(static_cast<size_t>(count * hidden_size_));
  kernels::rms_norm({.x = x,
                     .weight = norm.data(),
                     .y = y.data(),
                     .rows = count,
                     .n = hidden_size_,
                     .x_stride = hidden_size_,
                     .y_stride = hidden_size_,
                     .eps = eps_});
  return y;
}

void RetrievalHead::add_half(const kernels::PackedMatrix& w, const std::vector<float>& in, int64_t count,
                             float* out) const {
  std::vector<float> y(static_cast<size_t>(count * w.n()));
  kernels::matmul({.x = in.data(), .m = count, .x_stride = hidden_size_, .w = &w, .y = y.data(), .y_stride = w.n()});
  kernels::add_into(out, y.data(), count * w.n());
}

void RetrievalHead::rotate(float* x, int64_t count, int64_t heads, int64_t position) const {
  const int64_t half = head_dim_ / 2;
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < count; ++i) positions.push_back(static_cast<int32_t>(position + i));
  std::vector<float> cos(static_cast<size_t>(count * half));
  std::vector<float> sin(cos.size());
  kernels::rotation_tables(positions.data(), count, rotation_.inverse.data(), half,
                           static_cast<float>(rotation_.magnitude), cos.data(), sin.data());
  kernels::rotate({.x = x,
                   .tokens = count,
                   .heads = heads,
                   .head_dim = head_dim_,
                   .token_stride = heads * head_dim_,
                   .head_stride = head_dim_,
                   .rotary = head_dim_,
                   .cos = cos.data(),
                   .sin = sin.data()});
}

void RetrievalHead::project(const float* embeddings, const float* features, int64_t count, int64_t position, float* q,
                            float* k) const {
  const std::vector<float> token = normed(embeddings, count, token_.norm);
  std::vector<float> feature;
  if (features != nullptr && reads_features()) {
    std::vector<float> fused(static_cast<size_t>(count * hidden_size_));
    kernels::matmul({.x = features,
                     .m = count,
                     .x_stride = feature_size(),
                     .w = &fc_,
                     .y = fused.data(),
                     .y_stride = hidden_size_});
    feature = normed(fused.data(), count, feature_.norm);
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
