#include "harness/model/adapted_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/model/json_section.h"
#include "harness/model/safetensors.h"

namespace kvarena {
namespace {

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kWeights = "adapter_model.safetensors";
constexpr const char* kRestore = "restore_embeddings.safetensors";
constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";

/// Throws UserError for adapters of another kind than W + s B A with one lora_alpha.
void check_kind(const JsonSection& config) {
  const auto refuse = [&](const char* key, const std::string& found, const char* expected) {
    fail({.place = fmt::format("{}: {}", config.place(), key), .found = found, .expected = expected});
  };
  if (const std::string kind = config.string("peft_type"); kind != "LORA") refuse("peft_type", kind, "LORA");
  if (const std::string bias = config.string("bias", "none"); bias != "none") refuse("bias", bias, "none");
  for (const char* key : {"use_dora", "fan_in_fan_out"}) {
    if (config.boolean(key, false)) refuse(key, "true", "false");
  }
  const auto patterns = nlohmann::json::parse(read_file(config.place())).value("alpha_pattern", nlohmann::json());
  if (!patterns.empty()) refuse("alpha_pattern", patterns.dump(), "one lora_alpha for all");
}

/// s.
float scale_of(const JsonSection& config, int64_t rank) {
  const auto r = static_cast<double>(rank);
  return static_cast<float>(config.number("lora_alpha") / (config.boolean("use_rslora", false) ? std::sqrt(r) : r));
}

std::vector<float> read_all(const Checkpoint& file, const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  file.read_f32(tensor.name, values);
  return values;
}

}  // namespace

AdaptedCheckpoint::AdaptedCheckpoint(std::unique_ptr<Checkpoint> base, const std::filesystem::path& folder,
                                     const TensorNames& names)
    : base_(std::move(base)), folder_(folder), infos_(base_->tensors()) {
  read_factors();
  if (std::filesystem::exists(folder_ / kRestore)) add_tokens(names);
}

TensorInfo& AdaptedCheckpoint::computed(const std::string& name) {
  const auto found = std::ranges::lower_bound(infos_, name, {}, &TensorInfo::name);
  found->type = TensorType::f32;
  found->stored_type = "F32";
  return *found;
}

void AdaptedCheckpoint::read_factors() {
  const JsonSection config(folder_ / kConfig);
  check_kind(config);
  const std::unique_ptr<Checkpoint> file = open_safetensors(folder_ / kWeights);
  for (const TensorInfo& tensor : file->tensors()) {
    const auto wrong = [&](const std::string& found, const std::string& expected) {
      fail({.place = fmt::format("{}: tensor {}", file->path().string(), tensor.name),
            .found = found,
            .expected = expected});
    };
    const bool is_a = tensor.name.ends_with(kA), is_b = tensor.name.ends_with(kB);
    if (!(is_a || is_b) || !tensor.name.starts_with(kPrefix) || tensor.shape.size() != 2) {
      wrong("neither a factor A nor B of a projection", fmt::format("{}NAME{} or {}", kPrefix, kA, kB));
    }
    if (is_b) continue;  // read with A
    const std::string stem = tensor.name.substr(0, tensor.name.size() - kA.size());
    const TensorInfo& b = file->at(fmt::format("{}{}", stem, kB));
    const std::string name = fmt::format("{}.weight", std::string_view(stem).substr(kPrefix.size()));
    const TensorInfo& adapted = base_->at(name);
    const int64_t rank = tensor.rows();
    if (b.shape.size() != 2 || adapted.shape != std::vector{b.rows(), tensor.columns()} || b.columns() != rank) {
      wrong(fmt::format("[{}] beside a B of [{}]", fmt::join(tensor.shape, ", "), fmt::join(b.shape, ", ")),
            fmt::format("factors of {} [{}]", name, fmt::join(adapted.shape, ", ")));
    }
    Factors& factors = factors_[name];
    factors = {.rank = rank, .a = read_all(*file, tensor), .b = read_all(*file, b)};
    const float scale = scale_of(config, rank);
    for (float& x : factors.b) x *= scale;
    computed(name);
  }
}

void AdaptedCheckpoint::add_tokens(const TensorNames& names) {
  const std::unique_ptr<Checkpoint> file = open_safetensors(folder_ / kRestore);
  const TensorInfo& rows = file->at("restore_embeddings");
  const std::string embedding = fmt::format("{}.weight", names.embedding), head = fmt::format("{}.weight", names.head);
  const int64_t hidden = base_->at(embedding).columns();
  if (rows.shape.size() != 2 || rows.columns() != hidden) {
    fail({.place = fmt::format("{}: tensor restore_embeddings", file->path().string()),
          .found = fmt::format("[{}]", fmt::join(rows.shape, ", ")),
          .expected = fmt::format("rows of {}", hidden)});
  }
  added_tokens_ = rows.rows();
  rows_[embedding] = read_all(*file, rows);
  computed(embedding).shape[0] += added_tokens_;
  if (base_->find(head) == nullptr) return;
  rows_[head].resize(static_cast<size_t>(added_tokens_ * hidden));
  computed(head).shape[0] += added_tokens_;
}

std::vector<std::filesystem::path> AdaptedCheckpoint::files() const {
  std::vector<std::filesystem::path> all = base_->files();
  for (const char* name : {kConfig, kWeights, kRestore}) {
    if (std::filesystem::exists(folder_ / name)) all.push_back(folder_ / name);
  }
  std::ranges::sort(all);
  return all;
}

std::span<const std::byte> AdaptedCheckpoint::raw(std::string_view name) const {
  return factors_.contains(name) || rows_.contains(name) ? std::span<const std::byte>{} : base_->raw(name);
}

void AdaptedCheckpoint::convert_rows(size_t index, int64_t first, int64_t count, float* out) const {
  const std::string& name = infos_[index].name;
  const int64_t columns = infos_[index].columns(), stored = base_->at(name).rows();
  const int64_t of_base = std::clamp<int64_t>(stored - first, 0, count);
  if (of_base > 0) base_->read_rows_f32(name, first, of_base, {out, static_cast<size_t>(of_base * columns)});
  if (of_base < count) {
    const int64_t begin = first + of_base - stored;
    std::copy_n(&rows_.at(name)[begin * columns], (count - of_base) * columns, out + of_base * columns);
  }
  const auto found = factors_.find(name);
  if (found == factors_.end()) return;
  const Factors& factors = found->second;
  for (int64_t row = 0; row < of_base; ++row) {
    for (int64_t k = 0; k < factors.rank; ++k) {
      const float b = factors.b[(first + row) * factors.rank + k];
      const float* const a = &factors.a[k * columns];
      for (int64_t c = 0; c < columns; ++c) out[row * columns + c] += b * a[c];
    }
  }
}

std::vector<std::byte> AdaptedCheckpoint::copy_rows(size_t index, int64_t first, int64_t count) const {
  return base_->stored_rows(infos_[index].name, first, count);
}

}  // namespace kvarena
