#pragma once
// Tensors of latent attention, brought into the form in which the forward pass multiplies by them.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/model/config.h"
#include "harness/model/weight_loader.h"

namespace kvarena {

/// New places of the rows of a projection to heads with `plain` channels followed by rotated ones. Where rotation pairs
/// are neighbours, rows of the rotated part are put in half-split order: channel 2 j + s goes to s * rope / 2 + j.
/// Scores do not change, since queries and keys are reordered alike. Null: rows stay.
[[nodiscard]] std::function<int64_t(int64_t row)> latent_row_places(const ModelConfig& config, int64_t plain);

/// The matrices between latent and heads of one layer, over the channels of a cached entry. Stored as one tensor of
/// both, [q_heads * (nope + value), rank], or, in newer GGUF files, as k_b [q_heads, rank, nope] and v_b
/// [q_heads, value, rank]; some files have all three. Throws UserError where shapes are not the config's.
class LatentExpansion {
 public:
  /// `attention` is where a layer's attention begins among the names: "model.layers.N.self_attn.". All outlive this.
  LatentExpansion(WeightLoader& load, const ModelConfig& config, const std::string& attention);
  /// Whether a tensor is one of these, by its name in the file.
  [[nodiscard]] static bool is_part(std::string_view tensor);

  /// The type of the matrices: the loader's, or where it keeps stored forms what holds these exactly. Blocks run across
  /// the rows that are turned here, so they become float32.
  [[nodiscard]] kernels::DType dtype() const;

  /// The matrix [width, nope] that takes a head's query to the latent.
  [[nodiscard]] std::vector<float> to_latent(int64_t head);
  /// The matrix [v_head_dim, width] that takes the attended latent to a head's value.
  [[nodiscard]] std::vector<float> to_value(int64_t head);

 private:
  [[nodiscard]] std::vector<float> key_rows(int64_t head, int64_t heads);    // [heads * nope, rank]
  [[nodiscard]] std::vector<float> value_rows(int64_t head, int64_t heads);  // [heads * v_head_dim, rank]

  WeightLoader* load_;
  const ModelConfig* config_;
  std::string both_, keys_, values_;  // the tensors' names
  bool split_;                        // into keys_ and values_
};

}  // namespace kvarena
