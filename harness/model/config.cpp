#include "harness/model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/core/error.h"

namespace kvarena {

std::string_view to_string(RopeScaling::Type type) {
  switch (type) {
    case RopeScaling::Type::none: return "none";
    case RopeScaling::Type::linear: return "linear";
    case RopeScaling::Type::dynamic: return "dynamic";
    case RopeScaling::Type::llama3: return "llama3";
    case RopeScaling::Type::yarn: return "yarn";
    case RopeScaling::Type::factors: return "factors";
    case RopeScaling::Type::longrope: return "longrope";
  }
  return "";
}

bool ModelConfig::is_sparse_layer(int64_t layer) const {
  if (expert.experts == 0 || layer < expert.first_sparse_layer) return false;
  if ((layer + 1) % expert.sparse_step != 0) return false;
  return std::find(expert.dense_layers.begin(), expert.dense_layers.end(), layer) == expert.dense_layers.end();
}

bool ModelConfig::is_sliding_layer(int64_t layer) const {
  return sliding_window > 0 && (sliding_layers.empty() || sliding_layers[layer]);
}

int64_t ModelConfig::cached_layers() const { return layers - std::ranges::count(recurrent_layers, true); }

void extend_window(ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.type != RopeScaling::Type::dynamic && scaling.type != RopeScaling::Type::yarn) return;
  const double reach = static_cast<double>(scaling.original_max_position) * scaling.factor;
  if (reach < 1e9) config.max_position = std::max(config.max_position, static_cast<int64_t>(reach));
}

namespace {

void check_experts(const ExpertConfig& expert, const std::string& place) {
  if (expert.experts == 0) return;
  if (expert.experts_per_token < 1 || expert.experts_per_token > expert.experts || expert.intermediate_size < 1 ||
      expert.sparse_step < 1 || expert.shared_intermediate_size < 0) {
    fail({.place = place,
          .found = fmt::format("{} experts, {} for each token, of size {}", expert.experts, expert.experts_per_token,
                               expert.intermediate_size),
          .expected = "at least one expert a token and no more than there are"});
  }
  const bool grouped = expert.groups >= 1 && expert.experts % expert.groups == 0 && expert.groups_per_token >= 1 &&
                       expert.groups_per_token <= expert.groups;
  if (!grouped || expert.experts_per_token > expert.experts / expert.groups * expert.groups_per_token) {
    fail({.place = place,
          .found = fmt::format("{} experts for each token from {} of {} groups of {} experts", expert.experts_per_token,
                               expert.groups_per_token, expert.groups, expert.experts),
          .expected = "groups of equal size that hold enough experts"});
  }
}

void check_latent(const LatentAttentionConfig& latent, const std::string& place) {
  if (latent.kv_lora_rank == 0) return;
  if (latent.kv_lora_rank > 0 && latent.kv_lora_rank % 2 == 0 && latent.q_lora_rank >= 0 && latent.nope_head_dim > 0 &&
      latent.rope_head_dim > 0 && latent.rope_head_dim % 2 == 0 && latent.v_head_dim > 0) {
    return;
  }
  fail({.place = place,
        .found =
            fmt::format("a latent of {}, queries of {}, heads of {} + {} rotated, values of {}", latent.kv_lora_rank,
                        latent.q_lora_rank, latent.nope_head_dim, latent.rope_head_dim, latent.v_head_dim),
        .expected = "positive sizes, a latent and a rotated part that are even"});
}

void check_recurrence(const ModelConfig& config, const std::string& place) {
  if (config.recurrent_layers.empty()) return;
  const DeltaRuleConfig& delta = config.delta;
  constexpr int64_t kMostTaps = 16;            // of kernels::short_convolution
  constexpr int64_t kMost = int64_t{1} << 16;  // far above any model
  const auto sized = [](int64_t size) { return size > 0 && size < kMost; };
  if (!std::ranges::all_of(std::array{delta.k_heads, delta.v_heads, delta.k_dim, delta.v_dim, delta.taps}, sized) ||
      delta.v_heads % delta.k_heads != 0 || delta.taps > kMostTaps) {
    fail({.place = place,
          .found = fmt::format("linear attention of {} heads of {} for keys, {} of {} for values, {} tokens convolved",
                               delta.k_heads, delta.k_dim, delta.v_heads, delta.v_dim, delta.taps),
          .expected = "positive sizes below 65536, whole numbers of value heads for each key head, at most 16 tokens"});
  }
  if (config.cached_layers() > 0) return;
  fail({.place = place,
        .found = "linear attention in all layers",
        .expected = "full attention in one of them, whose entries can be cached"});
}

void check_factors(const std::vector<float>& factors, const ModelConfig& config, const std::string& place) {
  if (std::ssize(factors) == config.rotary_dim() / 2) return;
  fail({.place = place,
        .found = fmt::format("{} rope frequency factors", factors.size()),
        .expected = fmt::format("{}, half of a head's rotated channels", config.rotary_dim() / 2)});
}

void check_rotation(const ModelConfig& config, const std::string& place) {
  if (config.rotary_dim() % 2 != 0 || config.rotary_dim() < 2 || config.rotary_dim() > config.head_dim) {
    fail({.place = place,
          .found = fmt::format("{} rotated channels of heads of {}", config.rotary_dim(), config.head_dim),
          .expected = "an even number of a head's channels"});
  }
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.type != RopeScaling::Type::factors && scaling.type != RopeScaling::Type::longrope) return;
  check_factors(scaling.frequency_factors, config, place);
  if (scaling.type == RopeScaling::Type::longrope) check_factors(scaling.long_factors, config, place);
}

void check_scales(const ModelConfig& config, const std::string& place) {
  const auto is_number = [](double value) { return std::isfinite(value) && value > 0; };
  if (!is_number(config.embedding_scale) || !is_number(config.residual_scale) || !is_number(config.logit_scale)) {
    fail({.place = place,
          .found = fmt::format("factors {} on embeddings, {} on residuals, {} on logits", config.embedding_scale,
                               config.residual_scale, config.logit_scale),
          .expected = "positive, finite numbers"});
  }
  const auto is_number_or_none = [](double value) { return std::isfinite(value) && value >= 0; };
  if (!is_number_or_none(config.query_scalar) || !is_number_or_none(config.logit_cap) ||
      !is_number_or_none(config.gate_limit) || !std::isfinite(config.temperature) || config.temperature_step < 1) {
    fail({.place = place,
          .found = fmt::format("query scale {}, cap of logits {}, limit of gates {}, temperature {} every {}",
                               config.query_scalar, config.logit_cap, config.gate_limit, config.temperature,
                               config.temperature_step),
          .expected = "positive, finite numbers, or none"});
  }
}

}  // namespace

void check_config(const ModelConfig& config, const std::string& place) {
  // Far above any model, and low enough that products of two sizes stay inside 63 bits.
  constexpr int64_t kMaxSize = int64_t{1} << 31;
  const auto check = [&](const char* what, int64_t value) {
    if (value >= 1 && value < kMaxSize) return;
    fail({.place = place,
          .found = fmt::format("{} {}", what, value),
          .expected = fmt::format("a size from 1 to {}", kMaxSize - 1)});
  };
  check("layers", config.layers);
  check("hidden_size", config.hidden_size);
  check("q_heads", config.q_heads);
  check("kv_heads", config.kv_heads);
  check("head_dim", config.head_dim);
  check("intermediate_size", config.intermediate_size);
  check("vocab_size", config.vocab_size);
  check("max_position", config.max_position);
  if (config.q_heads % config.kv_heads != 0) {
    fail({.place = place,
          .found = fmt::format("{} query heads and {} key/value heads", config.q_heads, config.kv_heads),
          .expected = "a whole number of query heads for each key/value head"});
  }
  if (config.head_dim % 2 != 0) {
    fail({.place = place, .found = fmt::format("head_dim {}", config.head_dim), .expected = "an even number"});
  }
  const auto is_number = [](double value) { return std::isfinite(value) && value > 0; };
  const bool numbers = std::isfinite(config.rms_norm_eps) && config.rms_norm_eps >= 0 && is_number(config.rope_theta) &&
                       is_number(config.rope_scaling.factor) && is_number(config.sliding_rope_theta.value_or(1));
  if (!numbers) {
    fail({.place = place,
          .found = fmt::format("rms_norm_eps {}, rope_theta {}, rope factor {}", config.rms_norm_eps, config.rope_theta,
                               config.rope_scaling.factor),
          .expected = "positive, finite numbers"});
  }
  check_scales(config, place);
  const auto check_id = [&](const char* what, int32_t id) {
    if (id >= 0 && id < config.vocab_size) return;
    fail({.place = place,
          .found = fmt::format("{} {}", what, id),
          .expected = fmt::format("an id below vocab_size {}", config.vocab_size)});
  };
  if (config.bos) check_id("bos", *config.bos);
  for (const int32_t id : config.eos) check_id("eos", id);
  check_experts(config.expert, place);
  check_latent(config.latent, place);
  check_recurrence(config, place);
  check_rotation(config, place);
}

}  // namespace kvarena
