#include "harness/model/weight_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {

using kernels::PackedMatrix;

void WeightLoader::expect(const std::string& name, const std::vector<int64_t>& shape) {
  const TensorInfo& info = checkpoint_->at(name);
  read_.insert(name);
  if (info.shape == shape) return;
  fail({.place = fmt::format("{}: tensor {}", checkpoint_->path().string(), name),
        .found = fmt::format("shape [{}]", fmt::join(info.shape, ", ")),
        .expected = fmt::format("[{}] from the model's config", fmt::join(shape, ", "))});
}

PackedMatrix WeightLoader::make(int64_t n, int64_t k, kernels::DType dtype) {
  PackedMatrix packed(n, k, dtype);
  held_bytes_ += packed.bytes();
  return packed;
}

std::vector<float> WeightLoader::vector(const std::string& name, int64_t size) {
  expect(name, {size});
  std::vector<float> values(static_cast<size_t>(size));
  checkpoint_->read_f32(name, values);
  return values;
}

PackedMatrix WeightLoader::driver_matrix(const std::string& name, int64_t n, int64_t k) {
  expect(name, {n, k});
  whole_bytes_ += PackedMatrix::bytes_of(n, k, kernels::DType::f32);
  if (share_.rank != 0) return {};
  PackedMatrix packed = make(n, k, kernels::DType::f32);
  fill(packed, 0, {.name = name, .rows = n}, {.begin = 0, .end = n}, k);
  return packed;
}

Projection WeightLoader::stacked(const std::vector<TensorRows>& parts, int64_t k, bool bias) {
  int64_t total = 0;
  for (const TensorRows& part : parts) total += part.rows;
  const RowRange whole = share_.of(total);
  std::vector<RowRange> held;
  int64_t begin = 0;
  for (const TensorRows& part : parts) {
    held.push_back(whole.among(begin, part.rows));
    begin += part.rows;
  }
  Projection made = load(parts, held, k, bias);
  made.held = whole;
  return made;
}

Projection WeightLoader::side_by_side(const std::vector<TensorRows>& parts, int64_t k, bool bias) {
  const RowRange each = share_.of(parts.front().rows);
  Projection made = load(parts, std::vector<RowRange>(parts.size(), each), k, bias);
  made.held = each;
  return made;
}

Projection WeightLoader::load(const std::vector<TensorRows>& parts, const std::vector<RowRange>& held, int64_t k,
                              bool bias) {
  Projection made;
  int64_t count = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    expect(parts[i].name + ".weight", {parts[i].rows, k});
    made.out += parts[i].rows;
    count += held[i].count();
  }
  whole_bytes_ += PackedMatrix::bytes_of(made.out, k, dtype_);
  made.matrix = make(count, k, dtype_);
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const TensorRows& part = parts[i];
    fill(made.matrix, begin, {.name = part.name + ".weight", .rows = part.rows, .place = part.place}, held[i], k);
    begin += held[i].count();
    if (!bias) continue;
    const std::vector<float> stored = vector(part.name + ".bias", part.rows);
    std::vector<float> placed = stored;
    for (int64_t row = 0; part.place && row < part.rows; ++row) placed[part.place(row)] = stored[row];
    made.bias.insert(made.bias.end(), placed.begin() + held[i].begin, placed.begin() + held[i].end);
  }
  return made;
}

/// Rows of `part` that have their place in `held`, to begin .. of the packed matrix.
void WeightLoader::fill(PackedMatrix& packed, int64_t begin, const TensorRows& part, const RowRange& held,
                        int64_t k) const {
  constexpr int64_t kBlock = 512;  // rows held as float32 at a time
  RowRange read = held;            // rows of the tensor
  if (part.place) {
    read = {.begin = part.rows, .end = 0};
    for (int64_t row = 0; row < part.rows; ++row) {
      if (!held.holds(part.place(row))) continue;
      read = {.begin = std::min(read.begin, row), .end = row + 1};
    }
  }
  if (read.count() <= 0) return;
  std::vector<float> block(static_cast<size_t>(std::min(read.count(), kBlock) * k));
  for (int64_t first = read.begin; first < read.end; first += kBlock) {
    const int64_t count = std::min(kBlock, read.end - first);
    checkpoint_->read_rows_f32(part.name, first, count, std::span(block).first(static_cast<size_t>(count * k)));
    if (!part.place) {
      packed.pack_rows(begin + first - held.begin, count, block.data(), k);
      continue;
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = part.place(first + i);
      if (held.holds(row)) packed.pack_rows(begin + row - held.begin, 1, block.data() + i * k, k);
    }
  }
}

std::vector<float> WeightLoader::rows(const std::string& name, const std::vector<int64_t>& shape, int64_t first,
                                      int64_t count) {
  expect(name, shape);
  std::vector<float> values(static_cast<size_t>(count * checkpoint_->at(name).columns()));
  checkpoint_->read_rows_f32(name, first, count, values);
  return values;
}

HeadProjections WeightLoader::of_heads(int64_t heads, int64_t n, int64_t k,
                                       const std::function<std::vector<float>(int64_t head)>& make_head) {
  HeadProjections made{.heads = heads, .n = n, .k = k, .held = share_.of(heads, 1)};
  for (int64_t head = made.held.begin; head < made.held.end; ++head) {
    made.matrices.push_back(make(n, k, dtype_));
    made.matrices.back().pack_rows(0, n, make_head(head).data(), k);
  }
  whole_bytes_ += heads * PackedMatrix::bytes_of(n, k, dtype_);
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
