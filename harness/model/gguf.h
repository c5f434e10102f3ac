#pragma once
// The GGUF format, versions 2 and 3: metadata, tensor table, and the weights behind them.
// Written from the format's specification (ggml, docs/gguf.md).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/core/files.h"
#include "harness/model/checkpoint.h"
#include "kernels/matmul/weight_form.h"

namespace kvarena {

/// Types of metadata values, with the format's numbers.
enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// A metadata value, left in the mapped file. For an array, `type` is that of its elements.
struct GgufValue {
  GgufType type = GgufType::u8;
  bool is_array = false;
  uint64_t count = 1;
  std::span<const std::byte> bytes;  // the encoded elements, checked when the file was opened
};

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost first: the reverse of the file's order
  TensorType type = TensorType::f32;
  std::string stored_type;  // "Q4_1"
  std::span<const std::byte> bytes;
};

/// Whether a file begins as a GGUF file does, whatever its name; false for what cannot be read.
[[nodiscard]] bool is_gguf(const std::filesystem::path& path);

/// Whether a path is named as a part of a split file other than the first, NAME-00002-of-00003.gguf.
[[nodiscard]] bool is_later_part(const std::filesystem::path& path);

/// A mapped GGUF file whose every count, length and offset has been checked against the file's size. The first part of
/// a split file, which has all metadata, brings the tensors of the others, which lie beside it. Getters throw UserError
/// naming file and key when a key is missing (get_*) or holds another type.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);

  /// The file that was opened.
  [[nodiscard]] const std::filesystem::path& path() const { return files_.front().path(); }
  /// It, and the other parts.
  [[nodiscard]] std::vector<std::filesystem::path> paths() const;
  [[nodiscard]] const std::vector<GgufTensor>& tensors() const { return tensors_; }

  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  [[nodiscard]] std::vector<std::string> keys() const;

  [[nodiscard]] int64_t get_int(std::string_view key) const;
  [[nodiscard]] double get_float(std::string_view key) const;
  [[nodiscard]] bool get_bool(std::string_view key) const;
  [[nodiscard]] std::string get_string(std::string_view key) const;
  [[nodiscard]] std::optional<int64_t> find_int(std::string_view key) const;
  [[nodiscard]] std::optional<double> find_float(std::string_view key) const;
  [[nodiscard]] std::optional<bool> find_bool(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> find_string(std::string_view key) const;

  /// Views into the mapped file, which must stay open. Empty when the key is missing.
  [[nodiscard]] std::vector<std::string_view> find_strings(std::string_view key) const;
  [[nodiscard]] std::vector<int64_t> find_ints(std::string_view key) const;
  [[nodiscard]] std::vector<float> find_floats(std::string_view key) const;

 private:
  struct Alone {};
  /// One file, whole or a part.
  GgufFile(const std::filesystem::path& path, Alone);
  void add_part(int64_t part, int64_t parts);
  [[nodiscard]] const GgufValue* find(std::string_view key) const;
  [[noreturn]] void fail_missing(std::string_view key) const;
  [[noreturn]] void fail_type(std::string_view key, std::string_view expected) const;

  std::vector<MappedFile> files_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

/// The form in which weights of a type are multiplied as they are stored. Throws InternalError for `other`.
[[nodiscard]] kernels::WeightForm weight_form(TensorType type);

/// Takes whole blocks of a GGML quantised type apart, in their order.
void each_gguf_block(TensorType type, std::span<const std::byte> blocks,
                     const std::function<void(int64_t index, const kernels::WeightBlock& block)>& body);

/// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; a name without counterpart stays as it is.
/// `architecture`: the file's general.architecture, by which a few names differ.
[[nodiscard]] std::string canonical_tensor_name(std::string_view gguf_name, std::string_view architecture = {});

/// The tensors of `file` under Hugging Face names. For the llama architecture, the rows of query and key projections
/// come back in the order of Hugging Face checkpoints (rotation pairs i and i + head_dim/2). Stacked expert tensors
/// appear as one tensor an expert.
[[nodiscard]] std::unique_ptr<Checkpoint> open_gguf_checkpoint(std::shared_ptr<const GgufFile> file);

}  // namespace kvarena
