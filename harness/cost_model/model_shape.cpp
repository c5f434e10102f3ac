#include "harness/cost_model/model_shape.h"

#include <fmt/format.h>

#include <cmath>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/cost_model/description.h"

namespace kvarena::cost_model {
namespace {

int64_t attention_parameters(const ModelShape& s) {
  if (s.is_latent()) {
    const int64_t query_width = s.q_heads * (s.nope_head_dim + s.rope_head_dim);
    const int64_t queries = s.q_lora_rank == 0
                                ? s.hidden_size * query_width
                                : s.hidden_size * s.q_lora_rank + s.q_lora_rank + s.q_lora_rank * query_width;
    const int64_t latent = s.hidden_size * (s.kv_lora_rank + s.rope_head_dim) + s.kv_lora_rank;
    const int64_t expansion = s.kv_lora_rank * s.q_heads * (s.nope_head_dim + s.v_head_dim);
    return queries + latent + expansion + s.q_heads * s.v_head_dim * s.hidden_size;
  }
  const int64_t q_width = s.q_heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  const int64_t biases = s.qkv_bias ? q_width + 2 * kv_width : 0;
  const int64_t norms = s.qk_norm ? 2 * s.head_dim : 0;
  return s.hidden_size * (2 * q_width + 2 * kv_width) + biases + norms;
}

int64_t expert_parameters(const ModelShape& s) { return 3 * s.hidden_size * s.expert_intermediate_size; }
int64_t sparse_layers(const ModelShape& s) { return s.experts == 0 ? 0 : s.layers - s.first_sparse_layer; }

/// Numbers that every token is multiplied with: all but the embedding table and the routed experts.
int64_t shared_by_all(const ModelShape& s) {
  const int64_t sparse = sparse_layers(s), dense = s.layers - sparse;
  const int64_t router = s.hidden_size * s.experts + (s.expert_bias ? s.experts : 0);
  return s.vocab_size * s.hidden_size + s.hidden_size + s.layers * (attention_parameters(s) + 2 * s.hidden_size) +
         dense * 3 * s.hidden_size * s.intermediate_size + sparse * (router + s.shared_experts * expert_parameters(s));
}

void require(bool holds, const char* key, int64_t found, const std::string& expected, const std::string& place,
             std::vector<std::string>& problems) {
  if (holds) return;
  problems.push_back(describe(
      ErrorParts{.place = fmt::format("{}.{}", place, key), .found = fmt::format("{}", found), .expected = expected}));
}

}  // namespace

void ModelShape::parameters(ParameterVisitor& p) {
  p("title", title).required().doc("as its makers call it");
  p("source", source).required().doc("where the sizes stand");
  p("layers", layers).min(1).required();
  p("hidden_size", hidden_size).min(1).required();
  p("q_heads", q_heads).min(1).required();
  p("kv_heads", kv_heads).min(1).required();
  p("head_dim", head_dim).min(1).required();
  p("intermediate_size", intermediate_size).min(0).required().doc("of dense layers; 0 when there is none");
  p("vocab_size", vocab_size).min(1).required();
  p("max_position", max_position).min(1).required().doc("tokens of the window as published");
  p("tie_embeddings", tie_embeddings).doc("the output matrix is the embedding matrix");
  p("qkv_bias", qkv_bias).doc("queries, keys and values have biases");
  p("qk_norm", qk_norm).doc("each head's queries and keys have a norm");
  p("experts", experts).min(0).doc("of a sparse layer; 0: every layer is dense");
  p("experts_per_token", experts_per_token).min(0);
  p("expert_intermediate_size", expert_intermediate_size).min(0);
  p("shared_experts", shared_experts).min(0).doc("experts that every token visits");
  p("first_sparse_layer", first_sparse_layer).min(0).doc("layers before it are dense");
  p("expert_bias", expert_bias).doc("a correction of the routing scores");
  p("kv_lora_rank", kv_lora_rank).min(0).doc("the latent's size; 0: ordinary heads");
  p("q_lora_rank", q_lora_rank).min(0);
  p("nope_head_dim", nope_head_dim).min(0);
  p("rope_head_dim", rope_head_dim).min(0);
  p("v_head_dim", v_head_dim).min(0);
}

int64_t ModelShape::parameter_count() const {
  return shared_by_all(*this) + (tie_embeddings ? 0 : vocab_size * hidden_size) +
         sparse_layers(*this) * experts * expert_parameters(*this);
}

double ModelShape::read_parameters(double tokens) const {
  const auto shared = static_cast<double>(shared_by_all(*this));
  if (experts == 0) return shared;
  const double missed = std::pow(1 - static_cast<double>(experts_per_token) / static_cast<double>(experts), tokens);
  const auto routed = static_cast<double>(sparse_layers(*this) * experts * expert_parameters(*this));
  return shared + (1 - missed) * routed;
}

double ModelShape::active_parameters() const { return read_parameters(1); }

int64_t ModelShape::numbers_per_entry() const {
  return layers * (is_latent() ? kv_lora_rank + rope_head_dim : 2 * kv_heads * head_dim);
}

int64_t ModelShape::attention_products_per_entry() const {
  return layers * q_heads * (is_latent() ? 2 * kv_lora_rank + rope_head_dim : 2 * head_dim);
}

ModelShape parse_shape(const std::string& text, const std::string& name, const std::string& place) {
  ModelShape shape{.name = name};
  std::vector<std::string> problems;
  read_part(parse_object(text, place), place, shape, problems);
  throw_problems(problems);

  require(shape.q_heads % shape.kv_heads == 0, "kv_heads", shape.kv_heads,
          fmt::format("a divisor of q_heads, {}", shape.q_heads), place, problems);
  if (shape.experts > 0) {
    require(shape.experts_per_token >= 1 && shape.experts_per_token <= shape.experts, "experts_per_token",
            shape.experts_per_token, fmt::format("1 to experts, {}", shape.experts), place, problems);
    require(shape.expert_intermediate_size > 0, "expert_intermediate_size", shape.expert_intermediate_size,
            "a size, as there are experts", place, problems);
    require(shape.first_sparse_layer < shape.layers, "first_sparse_layer", shape.first_sparse_layer,
            fmt::format("a layer below {}", shape.layers), place, problems);
  }
  const bool has_dense_layer = shape.experts == 0 || shape.first_sparse_layer > 0;
  require(!has_dense_layer || shape.intermediate_size > 0, "intermediate_size", shape.intermediate_size,
          "a size, as there are dense layers", place, problems);
  if (shape.is_latent()) {
    for (const auto& [key, value] : {std::pair{"nope_head_dim", shape.nope_head_dim},
                                     {"rope_head_dim", shape.rope_head_dim},
                                     {"v_head_dim", shape.v_head_dim}}) {
      require(value > 0, key, value, "a size, as there is a latent", place, problems);
    }
  }
  throw_problems(problems);
  return shape;
}

ModelShape read_shape(const std::filesystem::path& file) {
  return parse_shape(read_file(file), file.stem().string(), file.string());
}

}  // namespace kvarena::cost_model
