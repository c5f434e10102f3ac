// GGUF tensors under the names and in the row order of Hugging Face checkpoints.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "harness/core/error.h"
#include "harness/model/architectures/architecture.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

constexpr std::array<NamePair, 4> kWholeModel = {{
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"rope_freqs", "rope_freqs"},
}};

/// Pairs of names after "blk.N." and after "model.layers.N.".
constexpr std::array<NamePair, 31> kInLayer = {{
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
    {"exp_probs_b", "mlp.gate.e_score_correction"},
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_k_b", "self_attn.k_b_proj"},
    {"attn_v_b", "self_attn.v_b_proj"},
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
    {"attn_sinks", "self_attn.sinks"},
}};

std::string_view look_up(std::span<const NamePair> table, std::string_view stem) {
  for (const auto& [gguf, canonical] : table) {
    if (gguf == stem) return canonical;
  }
  return {};
}

/// "model.layers.0.mlp.experts.gate_proj.weight" -> "model.layers.0.mlp.experts.5.gate_proj.weight"
std::string expert_name(const std::string& stacked, int64_t expert) {
  constexpr std::string_view kStack = "experts.";
  const size_t at = stacked.find(kStack) + kStack.size();
  return fmt::format("{}{}.{}", stacked.substr(0, at), expert, stacked.substr(at));
}

/// Converters leave out dimensions of one: that of a convolution of each channel by itself, and the row of a gate.
void put_back_ones(std::string_view name, std::vector<int64_t>& shape) {
  if (name.ends_with(".conv1d.weight") && shape.size() == 2) shape.insert(shape.begin() + 1, 1);
  if (name.ends_with(".shared_expert_gate.weight") && shape.size() == 1) shape.insert(shape.begin(), 1);
}

struct Stored {
  TensorInfo info;
  std::span<const std::byte> bytes;
  int64_t rotated_head_dim = 0;  // above 0: rows of each head are stored with rotation pairs side by side
};

/// Converters for some architectures store row 2 j + s of a head where Hugging Face has row s * head_dim / 2 + j,
/// so that rotation pairs are neighbours. This is the stored place of the Hugging Face row.
int64_t stored_row(int64_t row, int64_t head_dim) {
  const int64_t in_head = row % head_dim;
  const int64_t half = head_dim / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

int64_t rotated_head_dim(const GgufFile& file, const GgufTensor& tensor) {
  const Architecture* family = gguf_architecture(file.find_string("general.architecture").value_or(""));
  if (family == nullptr || !family->gguf_pairs) return 0;
  const bool query = tensor.name.ends_with(".attn_q.weight") || tensor.name.ends_with(".attn_q.bias");
  const bool key = tensor.name.ends_with(".attn_k.weight") || tensor.name.ends_with(".attn_k.bias");
  if (!query && !key) return 0;
  const std::string prefix(family->gguf);
  const int64_t q_heads = file.get_int(prefix + ".attention.head_count");
  const int64_t heads = query ? q_heads : file.find_int(prefix + ".attention.head_count_kv").value_or(q_heads);
  const int64_t rows = tensor.shape[0];
  if (heads <= 0 || rows % heads != 0 || rows / heads % 2 != 0) {
    fail({.place = fmt::format("{}: tensor {}", file.path().string(), tensor.name),
          .found = fmt::format("{} rows", rows),
          .expected = fmt::format("an even number for each of the {} heads of the metadata", heads)});
  }
  if (tensor.shape.size() == 1 && tensor.type != TensorType::other && block_size(tensor.type).elements != 1) {
    fail({.place = fmt::format("{}: tensor {}", file.path().string(), tensor.name),
          .found = "a bias in " + tensor.stored_type,
          .expected = "F32, F16 or BF16"});
  }
  return rows / heads;
}

class GgufCheckpoint final : public Checkpoint {
 public:
  explicit GgufCheckpoint(std::shared_ptr<const GgufFile> file)
      : file_(std::move(file)), architecture_(file_->find_string("general.architecture").value_or("")) {
    for (const GgufTensor& tensor : file_->tensors()) add(tensor);
    std::sort(stored_.begin(), stored_.end(),
              [](const Stored& a, const Stored& b) { return a.info.name < b.info.name; });
    for (size_t i = 0; i < stored_.size(); ++i) {
      if (i > 0 && stored_[i].info.name == stored_[i - 1].info.name) {
        fail({.place = path().string(),
              .found = fmt::format("tensor {} twice", stored_[i].info.stored_name),
              .expected = "names that are unique"});
      }
      infos_.push_back(stored_[i].info);
    }
  }

  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const std::filesystem::path& path() const override { return file_->path(); }
  std::vector<std::filesystem::path> files() const override { return file_->paths(); }

  std::span<const std::byte> raw(std::string_view name) const override {
    const Stored& tensor = stored_[static_cast<size_t>(&at(name) - infos_.data())];
    if (tensor.info.type == TensorType::other || block_size(tensor.info.type).elements != 1) return {};
    if (tensor.rotated_head_dim > 0) return {};
    return tensor.bytes;
  }

 private:
  void add(const GgufTensor& tensor) {
    Stored stored{.bytes = tensor.bytes, .rotated_head_dim = rotated_head_dim(*file_, tensor)};
    stored.info = {.name = canonical_tensor_name(tensor.name, architecture_),
                   .shape = tensor.shape,
                   .type = tensor.type,
                   .stored_type = tensor.stored_type,
                   .stored_name = tensor.name,
                   .stored_bytes = static_cast<int64_t>(tensor.bytes.size())};
    put_back_ones(stored.info.name, stored.info.shape);
    if (tensor.name.find("_exps.") != std::string::npos && tensor.shape.size() > 1) return add_experts(stored);
    stored_.push_back(std::move(stored));
  }

  /// [experts, out, in] as `experts` tensors of [out, in], and biases likewise.
  void add_experts(const Stored& stack) {
    const int64_t experts = stack.info.shape[0];
    for (int64_t expert = 0; expert < experts; ++expert) {
      const size_t bytes = stack.bytes.size() / static_cast<size_t>(experts);
      Stored one = stack;
      one.bytes = stack.bytes.subspan(static_cast<size_t>(expert) * bytes, bytes);
      one.info.name = expert_name(stack.info.name, expert);
      one.info.shape.erase(one.info.shape.begin());
      one.info.stored_bytes = static_cast<int64_t>(bytes);
      stored_.push_back(std::move(one));
    }
  }

  /// Calls body(bytes, elements) for stored pieces that make up the rows, in their order.
  template <class F>
  void each_piece(const Stored& tensor, int64_t first, int64_t count, const F& body) const {
    const bool bias = tensor.info.shape.size() == 1 && tensor.rotated_head_dim > 0;
    const int64_t columns = bias ? 1 : tensor.info.columns();
    if (bias) count *= tensor.info.elements();
    const BlockSize block = block_size(tensor.info.type);
    const int64_t row_bytes = columns / block.elements * block.bytes;
    const auto stored = [&](int64_t row, int64_t rows) {
      body(tensor.bytes.subspan(static_cast<size_t>(row * row_bytes), static_cast<size_t>(rows * row_bytes)),
           rows * columns);
    };
    if (tensor.rotated_head_dim == 0) return stored(first, count);
    for (int64_t i = 0; i < count; ++i) stored(stored_row(first + i, tensor.rotated_head_dim), 1);
  }

  void convert_rows(size_t index, int64_t first, int64_t count, float* out) const override {
    const Stored& tensor = stored_[index];
    each_piece(tensor, first, count, [&](std::span<const std::byte> bytes, int64_t elements) {
      convert_to_f32(tensor.info.type, bytes.data(), elements, out);
      out += elements;
    });
  }

  std::vector<std::byte> copy_rows(size_t index, int64_t first, int64_t count) const override {
    std::vector<std::byte> rows;
    each_piece(stored_[index], first, count,
               [&](std::span<const std::byte> bytes, int64_t) { rows.insert(rows.end(), bytes.begin(), bytes.end()); });
    return rows;
  }

  std::shared_ptr<const GgufFile> file_;
  std::string architecture_;
  std::vector<Stored> stored_;  // sorted by canonical name, like infos_
  std::vector<TensorInfo> infos_;
};

}  // namespace

std::string canonical_tensor_name(std::string_view gguf_name, std::string_view architecture) {
  const size_t dot = gguf_name.rfind('.');
  if (dot == std::string_view::npos) return std::string(gguf_name);
  constexpr std::string_view kWithoutEnding = ".ssm_a";
  const bool whole = gguf_name.ends_with(kWithoutEnding);
  std::string_view stem = whole ? gguf_name : gguf_name.substr(0, dot);
  const std::string_view ending = whole ? "" : gguf_name.substr(dot);  // ".weight", ".bias"
  if (const std::string_view name = look_up(kWholeModel, stem); !name.empty()) return fmt::format("{}{}", name, ending);
  constexpr std::string_view kBlock = "blk.";
  if (!stem.starts_with(kBlock)) return std::string(gguf_name);
  stem.remove_prefix(kBlock.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), layer);
  stem.remove_prefix(static_cast<size_t>(end - stem.data()));
  if (error != std::errc() || !stem.starts_with('.')) return std::string(gguf_name);
  std::string_view name;
  const Architecture* family = gguf_architecture(architecture);
  if (family != nullptr) name = look_up(family->renamed, stem.substr(1));
  if (name.empty()) name = look_up(kInLayer, stem.substr(1));
  if (name.empty()) return std::string(gguf_name);
  if (stem == ".exp_probs_b") return fmt::format("model.layers.{}.{}_bias", layer, name);
  if (stem == ".ssm_dt") return fmt::format("model.layers.{}.{}_bias", layer, name);
  if (stem == ".attn_sinks") return fmt::format("model.layers.{}.{}", layer, name);
  return fmt::format("model.layers.{}.{}{}", layer, name, ending);
}

std::unique_ptr<Checkpoint> open_gguf_checkpoint(std::shared_ptr<const GgufFile> file) {
  return std::make_unique<GgufCheckpoint>(std::move(file));
}

}  // namespace kvarena
