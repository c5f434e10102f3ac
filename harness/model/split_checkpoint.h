#pragma once
// Tensors that hold several projections of the forward pass, seen as one tensor each: queries, keys and values side by
// side, gates and ups, all experts of a layer. Names are those of TensorNames.

#include <vector>

#include "harness/model/architectures/architecture.h"
#include "harness/model/checkpoint.h"

namespace kvarena {

/// Holds neither weights nor the checkpoint behind it, which must outlive it. Reading rows of an expert that is stored
/// input by input reads the whole expert.
class SplitCheckpoint final : public Checkpoint {
 public:
  /// Throws UserError where a tensor's rows are not those of the config's projections.
  SplitCheckpoint(const Checkpoint& whole, const ModelConfig& config);

  [[nodiscard]] const std::vector<TensorInfo>& tensors() const override { return infos_; }
  [[nodiscard]] const std::filesystem::path& path() const override { return whole_->path(); }
  [[nodiscard]] std::vector<std::filesystem::path> files() const override { return whole_->files(); }
  [[nodiscard]] std::span<const std::byte> raw(std::string_view name) const override;

 private:
  /// How a part's row lies in the tensor that holds it.
  enum class Form : uint8_t {
    whole,     // the tensor itself
    rows,      // a row of it
    elements,  // of a row: every `step`th element from `first` on
    columns,   // of an expert's [in, out]: every `step`th column from `first` on
    mxfp4,     // of an expert's blocks: every `step`th row from `first` on
  };
  struct Part {
    TensorInfo info;
    const TensorInfo* from = nullptr;
    Form form = Form::whole;
    int64_t first = 0;
    int64_t step = 1;
    int64_t expert = 0;
  };
  struct Rows {
    std::string_view stem;
    int64_t rows;
  };

  void add(const TensorInfo& tensor);
  /// Adds the projections of a dense tensor, if `stem` is one: rows one below the other.
  bool add_stacked(const TensorInfo& tensor, std::string_view stem, std::string_view before,
                   const std::vector<Rows>& parts);
  /// Adds the experts of a tensor, if it holds those of a layer.
  bool add_experts(const TensorInfo& tensor);
  /// Adds one projection of all experts: `suffix` is what follows its name in the file.
  void add_expert_parts(const TensorInfo& tensor, std::string_view stem, std::string_view suffix,
                        std::string_view layer, int64_t part, int64_t parts);
  /// Rows in GGML's blocks.
  [[nodiscard]] std::vector<std::byte> mxfp4_rows(const Part& part, int64_t first, int64_t count) const;
  void convert_rows(size_t index, int64_t first, int64_t count, float* out) const override;
  [[nodiscard]] std::vector<std::byte> copy_rows(size_t index, int64_t first, int64_t count) const override;

  const Checkpoint* whole_;
  const ModelConfig* config_;
  const TensorNames* names_;
  std::vector<Part> parts_;  // sorted by name, like infos_
  std::vector<TensorInfo> infos_;
};

}  // namespace kvarena
