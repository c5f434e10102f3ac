#pragma once
// Named weights in a file or folder, whatever its format: safetensors (one file or shards) or GGUF.
//
// A checkpoint is memory-mapped: opening reads headers only, reading a tensor converts just what was asked for.
// Everything a header claims is checked when it is opened, so that a read cannot leave the file.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena {

/// Encoding of a tensor's elements in the file. Those behind bf16 are GGML's blocks but for `other`, a type that can be
/// listed but not read as floats (integers, 8-bit floats, GGML types without a decoder here).
enum class TensorType : uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
  other
};

/// "f32", "q4_1", ...
[[nodiscard]] std::string_view to_string(TensorType type);

/// Elements are stored in runs of `elements` that take `bytes` together; plain floats are blocks of one.
struct BlockSize {
  int64_t elements = 1;
  int64_t bytes = 4;
};
/// Block size of a type. Throws InternalError for `other`.
[[nodiscard]] BlockSize block_size(TensorType type);

struct TensorInfo {
  std::string name;            // Hugging Face style: model.layers.0.self_attn.q_proj.weight
  std::vector<int64_t> shape;  // outermost first, row-major: a projection is [out, in]
  TensorType type = TensorType::f32;
  std::string stored_type;   // the format's own word: "BF16", "Q4_1"
  std::string stored_name;   // the format's own name: "blk.0.attn_q.weight"
  int64_t stored_bytes = 0;  // bytes in the file

  /// Product of the shape; 1 for a scalar.
  [[nodiscard]] int64_t elements() const;
  /// A matrix has shape[0] rows of elements() / shape[0]; a vector is one row.
  [[nodiscard]] int64_t rows() const;
  [[nodiscard]] int64_t columns() const;
};

/// Read-only and without hidden state: any number of threads may read at once.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  /// All tensors, sorted by name, names unique.
  [[nodiscard]] virtual const std::vector<TensorInfo>& tensors() const = 0;

  /// The file or folder that was opened, for messages.
  [[nodiscard]] virtual const std::filesystem::path& path() const = 0;

  /// The files that hold weights, sorted, for provenance hashes.
  [[nodiscard]] virtual std::vector<std::filesystem::path> files() const = 0;

  /// The tensor called `name`, or null.
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;

  /// The tensor called `name`. Throws UserError naming the checkpoint, the tensor and the nearest name there is.
  [[nodiscard]] const TensorInfo& at(std::string_view name) const;

  /// Converts a whole tensor to f32, row-major. `out` has exactly elements() floats. Throws UserError naming file and
  /// tensor when it is missing, is of a type that is not floats, or holds a value that is not finite.
  void read_f32(std::string_view name, std::span<float> out) const;

  /// Rows first .. first+count-1 as f32 [count, columns()]. Same errors as read_f32.
  void read_rows_f32(std::string_view name, int64_t first, int64_t count, std::span<float> out) const;

  /// Rows first .. first+count-1 of a tensor of blocks as GGML stores its type, one row behind the other, their values
  /// unchecked.
  [[nodiscard]] std::vector<std::byte> stored_rows(std::string_view name, int64_t first, int64_t count) const;

  /// The mapped bytes of a tensor as they are in the file, when they are the elements in row-major order of `type`
  /// (f32, f16, bf16 only, and no rows to put back in order) and aligned to their size, or those of stored_type I64,
  /// I32, BOOL or U8, aligned or not; empty otherwise. Valid as long as the checkpoint lives.
  [[nodiscard]] virtual std::span<const std::byte> raw(std::string_view name) const = 0;

 private:
  /// Rows of tensors()[index]; the range has been checked.
  virtual void convert_rows(size_t index, int64_t first, int64_t count, float* out) const = 0;
  /// Rows of blocks of tensors()[index], which a checkpoint of plain floats does not have.
  [[nodiscard]] virtual std::vector<std::byte> copy_rows(size_t index, int64_t first, int64_t count) const;
};

/// SHA-256 over names, shapes and first rows of all tensors of floats: tells models apart, also those of one name.
[[nodiscard]] std::string fingerprint_of(const Checkpoint& checkpoint);

/// Opens a .safetensors file, a model.safetensors.index.json, a .gguf file, or a folder that holds one of these
/// (an index first, then model.safetensors, then the only .gguf file or the first of its parts). Throws UserError
/// naming what is wrong.
[[nodiscard]] std::unique_ptr<Checkpoint> open_checkpoint(const std::filesystem::path& path);

/// `count` elements (a whole number of blocks) of `type` to f32. `type` is not `other`.
void convert_to_f32(TensorType type, const std::byte* stored, int64_t count, float* out);

/// The product of `shape`, or -1 when a size is negative or the product overflows 63 bits.
[[nodiscard]] int64_t checked_elements(std::span<const int64_t> shape);

}  // namespace kvarena
