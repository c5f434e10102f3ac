#include "harness/method/drafter_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "harness/core/error.h"
#include "kernels/common/dtype.h"

namespace kvarena {

const FittedTensor* DrafterFile::find(std::string_view ending) const {
  for (const auto& [name, tensor] : weights_->tensors) {
    if (name.ends_with(ending)) return &tensor;
  }
  return nullptr;
}

const FittedTensor& DrafterFile::tensor(std::string_view ending, const std::vector<int64_t>& shape) const {
  for (const auto& [name, tensor] : weights_->tensors) {
    if (name.ends_with(ending)) return weights_->at(name, shape);
  }
  return weights_->at(ending, shape);  // throws
}

std::string DrafterFile::place(const std::string& key) const {
  return fmt::format("{}: config.json: {}", weights_->place, key);
}

std::optional<double> DrafterFile::number(const std::string& key) const {
  for (const std::string& name : {key, "transformer_layer_config." + key}) {
    const auto found = weights_->metadata.find(name);
    if (found == weights_->metadata.end() || found->second == "null") continue;
    double value = 0;
    const char* end = found->second.data() + found->second.size();
    if (std::from_chars(found->second.data(), end, value).ptr == end) return value;
    fail({.place = place(name), .found = found->second, .expected = "a number"});
  }
  return std::nullopt;
}

int64_t DrafterFile::count(const std::string& key) const {
  const auto value = number(key);
  if (!value || *value < 1) {
    fail({.place = place(key),
          .found = value ? fmt::format("{}", *value) : std::string("nothing"),
          .expected = "the config of an EAGLE-3 drafter"});
  }
  return static_cast<int64_t>(*value);
}

void DrafterFile::require_sizes_of(const ModelFacts& model) const {
  for (const auto& [key, own] : {std::pair{"hidden_size", model.hidden_size}, {"vocab_size", model.vocab_size}}) {
    const auto size = number(key);
    if (!size || *size == static_cast<double>(own)) continue;
    fail({.place = place(key),
          .found = fmt::format("{}", *size),
          .expected = fmt::format("{}, as {} has it", own, model.name),
          .action = "take a head that was trained for this model"});
  }
}

bool DrafterFile::flag(const std::string& key) const {
  const auto found = weights_->metadata.find(key);
  return found != weights_->metadata.end() && found->second == "true";
}

kernels::PackedMatrix pack_exactly(const float* rows, int64_t n, int64_t k, int64_t stride) {
  bool exact = true;
  for (int64_t row = 0; row < n && exact; ++row) {
    exact = std::all_of(rows + row * stride, rows + row * stride + k,
                        [](float value) { return kernels::bf16_to_f32(kernels::f32_to_bf16(value)) == value; });
  }
  kernels::PackedMatrix packed(n, k, exact ? kernels::DType::bf16 : kernels::DType::f32);
  packed.pack_rows(0, n, rows, stride);
  return packed;
}

}  // namespace kvarena
