#pragma once
// Where a device's weights come from: a checkpoint's tensors, or a generator.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/model/checkpoint.h"
#include "harness/model/config.h"

namespace kvarena::device {

/// Rows that are held as float32 at a time.
inline constexpr int64_t kStagedRows = 512;

/// Takes rows first .. first+count-1, [count, k].
using RowBlocks = std::function<void(int64_t first, int64_t count, const float* rows)>;

/// Takes a head's [width, nope] and [v_head_dim, width].
using HeadMatrices = std::function<void(std::span<const float> to_latent, std::span<const float> to_value)>;

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  [[nodiscard]] virtual std::vector<float> vector(const std::string& name, int64_t size) = 0;
  /// Calls body for blocks of up to kStagedRows of the rows of a matrix [n, k].
  virtual void read_blocks(const std::string& name, int64_t n, int64_t k, const RowBlocks& body) = 0;
  /// Calls body for every head with its matrices between latent and heads (harness/model/latent_rows.h); `attention` is
  /// where the layer's names begin.
  virtual void read_expansion(const std::string& attention, const HeadMatrices& body) = 0;
  /// After a layer whose tensors' names begin with `prefix`.
  virtual void layer_done(const std::string& prefix) = 0;
};

/// Throws UserError as load_weights() does. Config and checkpoint outlive it.
[[nodiscard]] std::unique_ptr<WeightSource> checkpoint_source(const ModelConfig& config, const Checkpoint& checkpoint,
                                                              kernels::DType dtype);

/// One block of random rows again and again, small enough that activations stay of size one; norms are 1.
[[nodiscard]] std::unique_ptr<WeightSource> random_source(const ModelConfig& config, uint64_t seed);

}  // namespace kvarena::device
