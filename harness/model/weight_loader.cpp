#include "harness/model/weight_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/model/gguf.h"
#include "kernels/common/parallel.h"

namespace kvarena {

using kernels::PackedMatrix;

namespace {

/// Packs `count` rows of blocks of a type, each where place(row) says.
template <class Place>
void pack_stored(PackedMatrix& packed, TensorType type, const std::vector<std::byte>& stored, int64_t count,
                 const Place& place) {
  const size_t row_bytes = stored.size() / static_cast<size_t>(count);
  kernels::parallel_for(count, [&](int64_t row) {
    each_gguf_block(
        type, std::span(stored).subspan(static_cast<size_t>(row) * row_bytes, row_bytes),
        [&](int64_t index, const kernels::WeightBlock& block) { packed.pack_block(place(row), index, block); });
  });
}

}  // namespace

void WeightLoader::expect(const std::string& name, const std::vector<int64_t>& shape) {
  const TensorInfo& info = checkpoint_->at(name);
  read_.insert(name);
  if (info.shape == shape) return;
  fail({.place = fmt::format("{}: tensor {}", checkpoint_->path().string(), name),
        .found = fmt::format("shape [{}]", fmt::join(info.shape, ", ")),
        .expected = fmt::format("[{}] from the model's config", fmt::join(shape, ", "))});
}

kernels::WeightForm WeightLoader::form(const std::string& name) const {
  if (dtype_) return kernels::form_of(*dtype_);
  const TensorType type = checkpoint_->at(name).type;
  return type == TensorType::other ? kernels::WeightForm::f32 : weight_form(type);  // reading refuses the others
}

PackedMatrix WeightLoader::make(int64_t n, int64_t k, kernels::WeightForm form) {
  PackedMatrix packed(n, k, form, form == kernels::WeightForm::bf16 ? arithmetic_ : kernels::Arithmetic::exact);
  bytes_ += packed.bytes();
  numbers_ += n * k;
  return packed;
}

std::vector<float> WeightLoader::vector(const std::string& name, int64_t size) {
  expect(name, {size});
  std::vector<float> values(static_cast<size_t>(size));
  checkpoint_->read_f32(name, values);
  return values;
}

PackedMatrix WeightLoader::matrix_f32(const std::string& name, int64_t n, int64_t k) {
  expect(name, {n, k});
  PackedMatrix packed = make(n, k, kernels::WeightForm::f32);
  fill(packed, 0, {.name = name, .rows = n}, k);
  return packed;
}

Projection WeightLoader::stacked(const std::vector<TensorRows>& parts, int64_t k, bool bias) {
  for (const TensorRows& part : parts) expect(part.name + ".weight", {part.rows, k});
  Projection made;
  int64_t begin = 0, end = 0;  // of the rows that the last matrix has, and of those that it has room for
  for (size_t i = 0; i < parts.size(); ++i, begin += parts[i - 1].rows) {
    const TensorRows& part = parts[i];
    if (begin == end) {
      begin = end = 0;
      const auto form_of = [&](size_t j) { return form(parts[j].name + ".weight"); };
      for (size_t j = i; j < parts.size() && form_of(j) == form_of(i); ++j) end += parts[j].rows;
      made.parts.push_back(make(end, k, form_of(i)));
    }
    fill(made.parts.back(), begin, {.name = part.name + ".weight", .rows = part.rows, .place = part.place}, k);
    if (!bias) continue;
    const std::vector<float> stored = vector(part.name + ".bias", part.rows);
    std::vector<float> placed = stored;
    for (int64_t row = 0; part.place && row < part.rows; ++row) placed[part.place(row)] = stored[row];
    made.bias.insert(made.bias.end(), placed.begin(), placed.end());
  }
  return made;
}

void WeightLoader::fill(PackedMatrix& packed, int64_t begin, const TensorRows& part, int64_t k) const {
  constexpr int64_t kBlock = 512;  // rows held as float32 at a time
  std::vector<float> block(static_cast<size_t>(std::min(part.rows, kBlock) * k));
  for (int64_t first = 0; first < part.rows; first += kBlock) {
    const int64_t count = std::min(kBlock, part.rows - first);
    const auto place = [&](int64_t i) { return begin + (part.place ? part.place(first + i) : first + i); };
    checkpoint_->read_rows_f32(part.name, first, count, std::span(block).first(static_cast<size_t>(count * k)));
    if (kernels::is_blocks(packed.form())) {  // whose values have been checked now
      pack_stored(packed, checkpoint_->at(part.name).type, checkpoint_->stored_rows(part.name, first, count), count,
                  place);
      continue;
    }
    if (!part.place) {
      packed.pack_rows(begin + first, count, block.data(), k);
      continue;
    }
    for (int64_t i = 0; i < count; ++i) packed.pack_rows(place(i), 1, block.data() + i * k, k);
  }
}

std::vector<float> WeightLoader::rows(const std::string& name, const std::vector<int64_t>& shape, int64_t first,
                                      int64_t count) {
  expect(name, shape);
  std::vector<float> values(static_cast<size_t>(count * checkpoint_->at(name).columns()));
  checkpoint_->read_rows_f32(name, first, count, values);
  return values;
}

HeadProjections WeightLoader::of_heads(int64_t heads, int64_t n, int64_t k, kernels::DType dtype,
                                       const std::function<std::vector<float>(int64_t head)>& make_head) {
  HeadProjections made;
  for (int64_t head = 0; head < heads; ++head) {
    made.push_back(make(n, k, kernels::form_of(dtype)));
    made.back().pack_rows(0, n, make_head(head).data(), k);
  }
  return made;
}

void WeightLoader::expect_all_read(std::string_view prefix, const std::string& architecture) const {
  for (const TensorInfo& info : checkpoint_->tensors()) {
    if (!info.name.starts_with(prefix) || read_.contains(info.name)) continue;
    if (info.name.ends_with("rotary_emb.inv_freq")) continue;  // a table that old exporters saved along
    fail({.place = fmt::format("{}: tensor {}", checkpoint_->path().string(), info.name),
          .found = fmt::format("a weight that a {} of this config does not have", architecture),
          .expected = "no others than the config implies",
          .action = "Check model_type and the bias and norm keys of the model's config."});
  }
}

}  // namespace kvarena
