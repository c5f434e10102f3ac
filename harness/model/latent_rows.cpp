#include "harness/model/latent_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace kvarena {
namespace {

constexpr const char* kBoth = "kv_b_proj.weight";
constexpr const char* kKeys = "k_b_proj.weight";
constexpr const char* kValues = "v_b_proj.weight";

/// A head's matrix [n, rank] from latent to keys or values, over the channels of a cached entry: [n, width].
std::vector<float> over_entries(const LatentAttentionConfig& latent, const std::vector<float>& rows) {
  const int64_t rank = latent.kv_lora_rank;
  const int64_t n = static_cast<int64_t>(rows.size()) / rank;
  std::vector<float> spread(static_cast<size_t>(n * latent.width()), 0.0F);
  for (int64_t i = 0; i < n * rank; ++i) spread[i / rank * latent.width() + latent.latent_channel(i % rank)] = rows[i];
  return spread;
}

/// Transposes [n, k] to [k, n].
std::vector<float> transposed(const std::vector<float>& rows, int64_t k) {
  const int64_t n = static_cast<int64_t>(rows.size()) / k;
  std::vector<float> turned(rows.size());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) turned[j * n + i] = rows[i * k + j];
  }
  return turned;
}

}  // namespace

std::function<int64_t(int64_t row)> latent_row_places(const ModelConfig& config, int64_t plain) {
  if (!config.rope_interleaved) return nullptr;
  const int64_t rope = config.latent.rope_head_dim;
  const int64_t width = plain + rope;
  return [=](int64_t row) {
    const int64_t channel = row % width - plain;
    return channel < 0 ? row : row - channel + channel % 2 * (rope / 2) + channel / 2;
  };
}

bool LatentExpansion::is_part(std::string_view tensor) {
  return std::ranges::any_of(std::array{kBoth, kKeys, kValues},
                             [&](std::string_view name) { return tensor.ends_with(fmt::format(".{}", name)); });
}

LatentExpansion::LatentExpansion(WeightLoader& load, const ModelConfig& config, const std::string& attention)
    : load_(&load),
      config_(&config),
      both_(attention + kBoth),
      keys_(attention + kKeys),
      values_(attention + kValues),
      split_(load.has(keys_) && load.has(values_)) {
  if (split_) load.skip(both_);
}

kernels::DType LatentExpansion::dtype() const {
  const kernels::WeightForm form = load_->form(split_ ? keys_ : both_);
  const bool alike = !split_ || load_->form(values_) == form;
  return alike && !kernels::is_blocks(form) ? kernels::dtype_of(form) : kernels::DType::f32;
}

std::vector<float> LatentExpansion::key_rows(int64_t head, int64_t heads) {
  const LatentAttentionConfig& latent = config_->latent;
  const int64_t nope = latent.nope_head_dim, both = nope + latent.v_head_dim;
  if (!split_) return load_->rows(both_, {config_->q_heads * both, latent.kv_lora_rank}, head * both, heads * nope);
  return transposed(load_->rows(keys_, {config_->q_heads, latent.kv_lora_rank, nope}, head, heads), nope);
}

std::vector<float> LatentExpansion::value_rows(int64_t head, int64_t heads) {
  const LatentAttentionConfig& latent = config_->latent;
  const int64_t nope = latent.nope_head_dim, value = latent.v_head_dim, rank = latent.kv_lora_rank;
  if (split_) return load_->rows(values_, {config_->q_heads, value, rank}, head, heads);
  const int64_t both = nope + value;
  return load_->rows(both_, {config_->q_heads * both, rank}, head * both + nope, heads * value);
}

std::vector<float> LatentExpansion::to_latent(int64_t head) {
  return transposed(over_entries(config_->latent, key_rows(head, 1)), config_->latent.width());
}

std::vector<float> LatentExpansion::to_value(int64_t head) {
  return over_entries(config_->latent, value_rows(head, 1));
}

}  // namespace kvarena
