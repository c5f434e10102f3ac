#include "harness/model/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/model/gguf.h"
#include "harness/model/safetensors.h"

namespace kvarena {
namespace {

struct TypeRow {
  std::string_view name;
  BlockSize block;
};

/// Rows in the order of TensorType. GGML block sizes: ggml's `block_q*` structures, K-quants in super-blocks of 256.
constexpr TypeRow kTypes[] = {
    {"f32", {1, 4}},      {"f16", {1, 2}},      {"bf16", {1, 2}},     {"q4_0", {32, 18}},   {"q4_1", {32, 20}},
    {"q5_0", {32, 22}},   {"q5_1", {32, 24}},   {"q8_0", {32, 34}},   {"q2_k", {256, 84}},  {"q3_k", {256, 110}},
    {"q4_k", {256, 144}}, {"q5_k", {256, 176}}, {"q6_k", {256, 210}}, {"iq4_nl", {32, 18}}, {"iq4_xs", {256, 136}},
    {"mxfp4", {32, 17}},  {"other", {0, 0}},
};

/// x - x is 0 for every finite x and NaN otherwise; the sum lets the loop vectorise.
bool all_finite(std::span<const float> values) {
  float sum = 0;
  for (const float value : values) sum += value - value;
  return sum == 0.0F;
}

void check_finite(const Checkpoint& checkpoint, const TensorInfo& info, int64_t first_row,
                  std::span<const float> values) {
  if (all_finite(values)) return;
  const auto bad = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  const int64_t element = first_row * info.columns() + (bad - values.begin());
  fail({.place = fmt::format("{}: tensor {}", checkpoint.path().string(), info.name),
        .found = fmt::format("{} at element {}", *bad, element),
        .expected = "finite weights",
        .action = "The file is damaged or was saved from a diverged run."});
}

std::filesystem::path find_in_folder(const std::filesystem::path& folder) {
  for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
    if (std::filesystem::exists(folder / name)) return folder / name;
  }
  std::vector<std::filesystem::path> gguf_files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf" && !is_later_part(entry.path())) gguf_files.push_back(entry.path());
  }
  if (gguf_files.size() == 1) return gguf_files.front();
  fail({.place = folder.string(),
        .found = gguf_files.empty() ? "no weights" : fmt::format("{} .gguf files", gguf_files.size()),
        .expected = "model.safetensors, model.safetensors.index.json or one .gguf file",
        .action = gguf_files.empty() ? "" : "Name one of the files."});
}

}  // namespace

std::string_view to_string(TensorType type) { return kTypes[static_cast<size_t>(type)].name; }

BlockSize block_size(TensorType type) {
  KVARENA_ASSERT(type != TensorType::other, "a type without a block size");
  return kTypes[static_cast<size_t>(type)].block;
}

int64_t checked_elements(std::span<const int64_t> shape) {
  int64_t product = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(product, size, &product)) return -1;
  }
  return product;
}

int64_t TensorInfo::elements() const { return checked_elements(shape); }
int64_t TensorInfo::rows() const { return shape.size() < 2 ? 1 : shape[0]; }
int64_t TensorInfo::columns() const { return rows() == 0 ? 0 : elements() / rows(); }

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto& all = tensors();
  const auto it = std::lower_bound(all.begin(), all.end(), name,
                                   [](const TensorInfo& info, std::string_view wanted) { return info.name < wanted; });
  return it != all.end() && it->name == name ? &*it : nullptr;
}

const TensorInfo& Checkpoint::at(std::string_view name) const {
  if (const TensorInfo* info = find(name)) return *info;
  std::vector<std::string> names;
  for (const TensorInfo& info : tensors()) names.push_back(info.name);
  fail({.place = path().string(),
        .found = fmt::format("no tensor \"{}\" among {}", name, names.size()),
        .nearest = nearest_name(name, names)});
}

void Checkpoint::read_f32(std::string_view name, std::span<float> out) const {
  read_rows_f32(name, 0, at(name).rows(), out);
}

void Checkpoint::read_rows_f32(std::string_view name, int64_t first, int64_t count, std::span<float> out) const {
  const TensorInfo& info = at(name);
  KVARENA_ASSERT(first >= 0 && count >= 0 && first <= info.rows() - count,
                 fmt::format("{}: rows {}+{} of {}", name, first, count, info.rows()));
  KVARENA_ASSERT(static_cast<int64_t>(out.size()) == count * info.columns(),
                 fmt::format("{}: room for {} floats, {} rows of {}", name, out.size(), count, info.columns()));
  if (info.type == TensorType::other) {
    fail({.place = fmt::format("{}: tensor {}", path().string(), name),
          .found = "elements of type " + info.stored_type,
          .expected =
              "F32, F16, BF16, or Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 in GGUF"});
  }
  convert_rows(static_cast<size_t>(&info - tensors().data()), first, count, out.data());
  check_finite(*this, info, first, out);
}

std::vector<std::byte> Checkpoint::stored_rows(std::string_view name, int64_t first, int64_t count) const {
  return copy_rows(static_cast<size_t>(&at(name) - tensors().data()), first, count);
}

std::vector<std::byte> Checkpoint::copy_rows(size_t index, int64_t /*first*/, int64_t /*count*/) const {
  KVARENA_ASSERT(false, fmt::format("{} has no blocks", tensors()[index].name));
  return {};
}

std::string fingerprint_of(const Checkpoint& checkpoint) {
  std::string text;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.type == TensorType::other || tensor.elements() == 0) continue;
    text += fmt::format("{} [{}]\n", tensor.name, fmt::join(tensor.shape, ", "));
    std::vector<float> row(static_cast<size_t>(tensor.columns()));
    checkpoint.read_rows_f32(tensor.name, 0, 1, row);
    text.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
  }
  return sha256(text);
}

std::unique_ptr<Checkpoint> open_checkpoint(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    fail({.place = path.string(), .found = "nothing", .expected = "a model folder, a .safetensors or a .gguf file"});
  }
  const std::filesystem::path file = std::filesystem::is_directory(path) ? find_in_folder(path) : path;
  if (file.extension() == ".gguf") return open_gguf_checkpoint(std::make_shared<const GgufFile>(file));
  if (file.extension() == ".safetensors") return open_safetensors(file);
  if (file.extension() == ".json") return open_sharded_safetensors(file);
  fail({.place = file.string(),
        .found = fmt::format("the extension \"{}\"", file.extension().string()),
        .expected = ".safetensors, .gguf, or model.safetensors.index.json"});
}

}  // namespace kvarena
