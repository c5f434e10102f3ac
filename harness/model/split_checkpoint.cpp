#include "harness/model/split_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "harness/core/error.h"

namespace kvarena {
namespace {

constexpr int64_t kMxfp4Block = 32;  // numbers under one exponent
constexpr std::string_view kBlocks = "_blocks";
constexpr std::string_view kScales = "_scales";
constexpr std::string_view kBias = "_bias";

/// The name of an MXFP4 tensor's exponents.
std::string scales_of(const std::string& blocks) {
  return blocks.substr(0, blocks.size() - kBlocks.size()) + std::string(kScales);
}

std::span<const std::byte> bytes_of(const Checkpoint& checkpoint, const std::string& name, int64_t size) {
  const TensorInfo& info = checkpoint.at(name);
  const std::span<const std::byte> bytes = checkpoint.raw(name);
  if (info.stored_type == "U8" && std::ssize(bytes) == size) return bytes;
  fail({.place = fmt::format("{}: tensor {}", checkpoint.path().string(), name),
        .found = fmt::format("{} [{}]", info.stored_type, fmt::join(info.shape, ", ")),
        .expected = fmt::format("{} bytes of MXFP4", size)});
}

}  // namespace

SplitCheckpoint::SplitCheckpoint(const Checkpoint& whole, const ModelConfig& config)
    : whole_(&whole), config_(&config), names_(&architecture_of(config).tensors) {
  for (const TensorInfo& tensor : whole.tensors()) add(tensor);
  std::ranges::sort(parts_, {}, [](const Part& part) { return part.info.name; });
  for (const Part& part : parts_) infos_.push_back(part.info);
}

void SplitCheckpoint::add(const TensorInfo& tensor) {
  const int64_t kv = config_->kv_heads * config_->head_dim;
  const int64_t rows = tensor.shape.empty() ? 0 : tensor.shape[0];
  if (add_stacked(tensor, names_->qkv, "",
                  {{names_->q, config_->q_heads * config_->head_dim}, {names_->k, kv}, {names_->v, kv}}) ||
      add_stacked(tensor, names_->gate_up, names_->mlp, {{names_->gate, rows / 2}, {names_->up, rows / 2}}) ||
      add_experts(tensor)) {
    return;
  }
  parts_.push_back({.info = tensor, .from = &tensor});
}

bool SplitCheckpoint::add_stacked(const TensorInfo& tensor, std::string_view stem, std::string_view before,
                                  const std::vector<Rows>& parts) {
  if (stem.empty() || !tensor.name.starts_with(names_->layer)) return false;
  for (const std::string_view ending : {".weight", ".bias"}) {
    const std::string name = fmt::format(".{}{}{}", before, stem, ending);
    if (!tensor.name.ends_with(name)) continue;
    int64_t first = 0;
    for (const Rows& part : parts) {
      Part made{.info = tensor, .from = &tensor, .first = first};
      made.form = tensor.shape.size() == 1 ? Form::elements : Form::rows;
      made.info.name =
          fmt::format("{}.{}{}{}", tensor.name.substr(0, tensor.name.size() - name.size()), before, part.stem, ending);
      made.info.shape[0] = part.rows;
      parts_.push_back(std::move(made));
      first += part.rows;
    }
    if (first == tensor.shape[0]) return true;
    fail({.place = fmt::format("{}: tensor {}", whole_->path().string(), tensor.name),
          .found = fmt::format("shape [{}]", fmt::join(tensor.shape, ", ")),
          .expected = fmt::format("{} rows from the model's config", first)});
  }
  return false;
}

bool SplitCheckpoint::add_experts(const TensorInfo& tensor) {
  const size_t at = tensor.name.find(names_->experts);
  if (names_->gate_up.empty() || at == std::string::npos || !tensor.name.starts_with(names_->layer)) return false;
  const std::string_view layer = std::string_view(tensor.name).substr(0, at);
  const std::string_view rest = std::string_view(tensor.name).substr(at + names_->experts.size());
  for (const std::string_view suffix : {std::string_view(), kBias, kBlocks, kScales}) {
    const bool both = rest == fmt::format("{}{}", names_->gate_up, suffix);
    if (!both && rest != fmt::format("{}{}", names_->down, suffix)) continue;
    if (suffix == kScales) return true;  // read with its blocks
    if (tensor.shape.size() != (suffix == kBlocks ? 4U : suffix == kBias ? 2U : 3U)) return false;
    if (both) {
      add_expert_parts(tensor, names_->gate, suffix, layer, 0, 2);
      add_expert_parts(tensor, names_->up, suffix, layer, 1, 2);
    } else {
      add_expert_parts(tensor, names_->down, suffix, layer, 0, 1);
    }
    return true;
  }
  return false;
}

void SplitCheckpoint::add_expert_parts(const TensorInfo& tensor, std::string_view stem, std::string_view suffix,
                                       std::string_view layer, int64_t part, int64_t parts) {
  const bool transposed = suffix.empty();
  const int64_t rows = tensor.shape[transposed ? 2 : 1] / parts;
  const int64_t columns = suffix == kBlocks ? tensor.shape[2] * kMxfp4Block : tensor.shape[1];
  for (int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
    Part made{.info = tensor, .from = &tensor, .form = Form::columns, .expert = expert};
    if (suffix == kBias) made.form = Form::elements;
    if (suffix == kBlocks) made.form = Form::mxfp4;
    made.step = names_->alternating ? parts : 1;
    made.first = names_->alternating ? part : part * rows;
    made.info.name =
        fmt::format("{}{}{}.{}.{}", layer, names_->experts, expert, stem, suffix == kBias ? "bias" : "weight");
    made.info.shape = {rows};
    if (suffix != kBias) made.info.shape.push_back(columns);
    if (suffix == kBlocks) made.info.type = TensorType::mxfp4;
    made.info.stored_bytes /= tensor.shape[0] * parts;
    parts_.push_back(std::move(made));
  }
}

std::span<const std::byte> SplitCheckpoint::raw(std::string_view name) const {
  const Part& part = parts_[static_cast<size_t>(&at(name) - infos_.data())];
  if (part.form != Form::whole) return {};
  return whole_->raw(name);
}

/// Stored as blocks [experts, rows, blocks, 16], in which a byte holds two neighbours, the first in its low bits, and
/// exponents [experts, rows, blocks].
std::vector<std::byte> SplitCheckpoint::mxfp4_rows(const Part& part, int64_t first, int64_t count) const {
  const std::vector<int64_t>& shape = part.from->shape;
  const int64_t rows = shape[0] * shape[1], blocks = shape[2];
  constexpr int64_t kBytes = kMxfp4Block / 2;
  const auto packed = bytes_of(*whole_, part.from->name, rows * blocks * kBytes);
  const auto exponents = bytes_of(*whole_, scales_of(part.from->name), rows * blocks);
  std::vector<std::byte> out;
  out.reserve(static_cast<size_t>(count * blocks * (kBytes + 1)));
  for (int64_t r = 0; r < count; ++r) {
    const int64_t row = part.expert * shape[1] + part.first + part.step * (first + r);
    for (int64_t block = row * blocks; block < (row + 1) * blocks; ++block) {
      out.push_back(exponents[static_cast<size_t>(block)]);
      const auto pairs = packed.subspan(static_cast<size_t>(block * kBytes), kBytes);
      const auto number = [&](size_t i) { return pairs[i / 2] >> (i % 2 * 4) & std::byte{15}; };
      for (size_t i = 0; i < kBytes; ++i) out.push_back(number(i) | number(i + kBytes) << 4);
    }
  }
  return out;
}

std::vector<std::byte> SplitCheckpoint::copy_rows(size_t index, int64_t first, int64_t count) const {
  const Part& part = parts_[index];
  if (part.form == Form::mxfp4) return mxfp4_rows(part, first, count);
  KVARENA_ASSERT(part.form == Form::whole || part.form == Form::rows, part.info.name + " is cut within its blocks");
  return whole_->stored_rows(part.from->name, part.first + first, count);
}

void SplitCheckpoint::convert_rows(size_t index, int64_t first, int64_t count, float* out) const {
  const Part& part = parts_[index];
  const int64_t columns = part.info.columns();
  const auto read = [&](int64_t row, int64_t rows, std::span<float> to) {
    whole_->read_rows_f32(part.from->name, row, rows, to);
  };
  if (part.form == Form::mxfp4) {
    return convert_to_f32(TensorType::mxfp4, mxfp4_rows(part, first, count).data(), count * columns, out);
  }
  if (part.form == Form::whole || part.form == Form::rows) {
    return read(part.first + first, count, {out, static_cast<size_t>(count * columns)});
  }
  std::vector<float> held(static_cast<size_t>(part.from->columns()));
  read(part.expert, 1, held);
  if (part.form == Form::elements) {
    for (int64_t i = 0; i < columns; ++i) out[i] = held[static_cast<size_t>(part.first + part.step * i)];
    return;
  }
  const int64_t width = part.from->shape[2];
  for (int64_t r = 0; r < count; ++r) {
    const int64_t column = part.first + part.step * (first + r);
    for (int64_t i = 0; i < columns; ++i) *out++ = held[static_cast<size_t>(i * width + column)];
  }
}

}  // namespace kvarena
