#pragma once
// A checkpoint under a low-rank adapter as PEFT saves it: adapter_config.json and adapter_model.safetensors.

#include <functional>
#include <map>
#include <string>

#include "harness/model/architectures/architecture.h"
#include "harness/model/checkpoint.h"

namespace kvarena {

/// The tensors of a base, adapted ones W + s B A in f32 (Hu et al. 2021, arXiv:2106.09685), s = lora_alpha / r, or
/// lora_alpha / sqrt(r) with use_rslora. Where the folder has restore_embeddings.safetensors, its rows stand behind
/// those of the vocabulary, as tokens of their own that nothing predicts (RestoreKV).
class AdaptedCheckpoint final : public Checkpoint {
 public:
  /// Throws UserError naming the file and what is wrong: another kind of adapter, factors of a tensor that the base
  /// does not have or whose shape is another.
  AdaptedCheckpoint(std::unique_ptr<Checkpoint> base, const std::filesystem::path& folder, const TensorNames& names);

  /// Rows behind the vocabulary's.
  [[nodiscard]] int64_t added_tokens() const { return added_tokens_; }

  [[nodiscard]] const std::vector<TensorInfo>& tensors() const override { return infos_; }
  [[nodiscard]] const std::filesystem::path& path() const override { return folder_; }
  [[nodiscard]] std::vector<std::filesystem::path> files() const override;
  [[nodiscard]] std::span<const std::byte> raw(std::string_view name) const override;

 private:
  struct Factors {
    int64_t rank = 0;
    std::vector<float> a, b;  // [rank, in], [out, rank]; B times s
  };

  void read_factors();
  void add_tokens(const TensorNames& names);
  /// Makes a tensor one of f32 that is put together here.
  TensorInfo& computed(const std::string& name);
  void convert_rows(size_t index, int64_t first, int64_t count, float* out) const override;
  [[nodiscard]] std::vector<std::byte> copy_rows(size_t index, int64_t first, int64_t count) const override;

  std::unique_ptr<Checkpoint> base_;
  std::filesystem::path folder_;
  std::vector<TensorInfo> infos_;                                // sorted by name
  std::map<std::string, Factors, std::less<>> factors_;          // by the tensor that they change
  std::map<std::string, std::vector<float>, std::less<>> rows_;  // behind those of the base
  int64_t added_tokens_ = 0;
};

}  // namespace kvarena
