#include "harness/device/device_dequant_ops.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "harness/cache/rotation_tables.h"
#include "harness/device/growing_array.h"
#include "harness/device/packed_side.h"
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/hadamard/hadamard_cuda.h"
#include "kernels/quantize/quantize_cuda.h"

namespace kvarena::device {
namespace {

using kernels::CudaScratch;
using kernels::CudaStream;
using kernels::PlacedNumber;
using kernels::RowScale;

/// Codes, scales and zeros of a second plane.
class DeviceAddCodes final : public DeviceDequantOp {
 public:
  explicit DeviceAddCodes(const AddCodes& op) : factor_(op.factor) {
    for (const kernels::PackedEntries& head : op.heads) heads_.emplace_back(head);
  }
  void follow(const DequantOp& op, int64_t before, int64_t after, UploadBatch& uploads) override {
    const auto& said = std::get<AddCodes>(op).heads;
    for (size_t h = 0; h < heads_.size(); ++h) heads_[h].follow(said[h], before, after, uploads);
  }
  void apply(RowsAtWork& work, int64_t first, CudaScratch& scratch, CudaStream stream) const override {
    std::vector<kernels::RowDecode> items;
    for (size_t h = 0; h < heads_.size(); ++h) {
      items.push_back({.from = heads_[h].entries(),
                       .position = first,
                       .count = work.rows.count,
                       .rows = work.rows.x + static_cast<int64_t>(h) * work.rows.head_dim,
                       .row_stride = work.rows.width()});
    }
    kernels::decode_rows_cuda(items, scratch, stream, factor_);
  }
  [[nodiscard]] int64_t bytes() const override {
    return std::accumulate(heads_.begin(), heads_.end(), int64_t{0},
                           [](int64_t sum, const PackedSide& head) { return sum + head.bytes(); });
  }

 private:
  std::vector<PackedSide> heads_;  // [kv_heads]
  float factor_;
};

/// A step whose numbers are the same for every entry: `Op` reads them once.
template <class Op, class Item>
class ChannelStep : public DeviceDequantOp {
 public:
  void follow(const DequantOp& op, int64_t before, int64_t /*after*/, UploadBatch& uploads) final {
    if (before > 0) return;
    const std::vector<Item> items = std::get<Op>(op).read();
    items_.append(items.data(), std::ssize(items), uploads);
  }
  [[nodiscard]] int64_t bytes() const final { return items_.bytes(); }

 protected:
  [[nodiscard]] const Item* items() const { return items_.data(); }
  [[nodiscard]] int64_t count() const { return items_.count(); }

 private:
  GrowingArray<Item> items_;  // [width], or as many as the step names
};

class DeviceScaleChannels final : public ChannelStep<ScaleChannels, RowScale> {
  void apply(RowsAtWork& work, int64_t /*first*/, CudaScratch& /*scratch*/, CudaStream stream) const override {
    kernels::scale_channels_cuda(work.rows, items(), stream);
  }
};

class DeviceScaleEntries final : public DeviceDequantOp {
 public:
  explicit DeviceScaleEntries(const ScaleEntries& op) : shared_(op.shared) {}
  void follow(const DequantOp& op, int64_t before, int64_t after, UploadBatch& uploads) override {
    std::vector<RowScale> scales;
    std::get<ScaleEntries>(op).read(before, after - before, scales);
    scales_.append(scales.data(), std::ssize(scales), uploads);
  }
  void apply(RowsAtWork& work, int64_t first, CudaScratch& /*scratch*/, CudaStream stream) const override {
    const int64_t each = shared_ ? 1 : work.rows.heads;
    kernels::scale_entries_cuda(work.rows, scales_.data() + first * each, shared_, stream);
  }
  [[nodiscard]] int64_t bytes() const override { return scales_.bytes(); }

 private:
  bool shared_;
  GrowingArray<RowScale> scales_;  // [entries, heads], or [entries]
};

class DeviceScaleTiles final : public DeviceDequantOp {
 public:
  DeviceScaleTiles(const ScaleTiles& op, int64_t width) : tile_(op.tile), width_(width) {}
  void follow(const DequantOp& op, int64_t /*before*/, int64_t after, UploadBatch& uploads) override {
    const int64_t have = scales_.count() / width_, need = (after + tile_ - 1) / tile_;
    std::vector<RowScale> scales;
    std::get<ScaleTiles>(op).read(have, need - have, scales);
    scales_.append(scales.data(), std::ssize(scales), uploads);
  }
  void apply(RowsAtWork& work, int64_t first, CudaScratch& /*scratch*/, CudaStream stream) const override {
    kernels::scale_tiles_cuda(work.rows, first, tile_, scales_.data(), stream);
  }
  [[nodiscard]] int64_t bytes() const override { return scales_.bytes(); }

 private:
  int64_t tile_, width_;
  GrowingArray<RowScale> scales_;  // [tiles, width]
};

class DeviceFromPolar final : public DeviceDequantOp {
  void apply(RowsAtWork& work, int64_t /*first*/, CudaScratch& /*scratch*/, CudaStream stream) const override {
    kernels::from_polar_cuda(work.rows, stream);
  }
};

class DeviceSparseOverride final : public DeviceDequantOp {
 public:
  void follow(const DequantOp& op, int64_t before, int64_t after, UploadBatch& uploads) override {
    SparseOverride::Numbers numbers;
    std::get<SparseOverride>(op).read(before, after - before, numbers);
    std::vector<int32_t> starts;
    auto end = static_cast<int32_t>(numbers_.count());
    if (before == 0) starts.push_back(end);
    for (const int32_t count : numbers.counts) starts.push_back(end += count);
    starts_.append(starts.data(), std::ssize(starts), uploads);
    numbers_.append(numbers.values.data(), std::ssize(numbers.values), uploads);
  }
  void apply(RowsAtWork& work, int64_t first, CudaScratch& /*scratch*/, CudaStream stream) const override {
    kernels::place_numbers_cuda(work.rows, starts_.data() + first, numbers_.data(), stream);
  }
  [[nodiscard]] int64_t bytes() const override { return starts_.bytes() + numbers_.bytes(); }

 private:
  GrowingArray<int32_t> starts_;  // [entries + 1]
  GrowingArray<PlacedNumber> numbers_;
};

/// Factors of all blocks one behind the other: of each block and head a, if it is not that of the head before, and b,
/// if no block had it before.
class DeviceAddProducts final : public DeviceDequantOp {
 public:
  void follow(const DequantOp& op, int64_t before, int64_t after, UploadBatch& uploads) override {
    std::vector<AddProducts::Block> blocks;
    std::get<AddProducts>(op).read(before, after - before, blocks);
    for (const AddProducts::Block& block : blocks) {
      Block& known = blocks_.emplace_back(Block{block.first, block.count, block.rank, {}, {}});
      for (size_t h = 0; h < block.a.size(); ++h) {
        const bool again = h > 0 && block.a[h].data() == block.a[h - 1].data();
        known.a.push_back(again ? known.a.back() : factors_.count());
        if (!again) factors_.append(block.a[h].data(), std::ssize(block.a[h]), uploads);
        const auto [at, added] = b_at_.try_emplace(known_by(block.b[h]), factors_.count());
        if (added) factors_.append(block.b[h].data(), std::ssize(block.b[h]), uploads);
        known.b.push_back(at->second);
      }
    }
  }
  void apply(RowsAtWork& work, int64_t first, CudaScratch& scratch, CudaStream stream) const override {
    const kernels::EntryRows& rows = work.rows;
    std::vector<kernels::RowProduct> products;
    for (const Block& block : blocks_) {
      const int64_t begin = std::max(first, block.first);
      const int64_t end = std::min(first + rows.count, block.first + block.count);
      for (int64_t h = 0; h < rows.heads && begin < end; ++h) {
        products.push_back({.x = rows.x + (begin - first) * rows.width() + h * rows.head_dim,
                            .x_stride = rows.width(),
                            .count = end - begin,
                            .n = rows.head_dim,
                            .rank = block.rank,
                            .dtype = kernels::DType::f16,
                            .a = factors_.data() + block.a[h] + (begin - block.first) * block.rank,
                            .b = factors_.data() + block.b[h]});
      }
    }
    kernels::add_products_cuda(products, scratch, stream);
  }
  [[nodiscard]] int64_t bytes() const override { return factors_.bytes(); }

 private:
  struct Block {
    int64_t first, count, rank;
    std::vector<int64_t> a, b;  // [heads] where their factors begin
  };
  using Key = std::pair<const uint16_t*, size_t>;
  /// Place and hash of the host's numbers: of a block that is gone another one may have the place.
  static Key known_by(std::span<const uint16_t> numbers) {
    const auto* const bytes = reinterpret_cast<const char*>(numbers.data());
    return {numbers.data(), std::hash<std::string_view>()({bytes, numbers.size_bytes()})};
  }

  std::vector<Block> blocks_;
  std::map<Key, int64_t> b_at_;  // where the host's lie here
  GrowingArray<uint16_t> factors_;
};

class DeviceAddSketch final : public DeviceDequantOp {
 public:
  DeviceAddSketch(const AddSketch& op, int64_t heads, int64_t head_dim)
      : heads_(heads), head_dim_(head_dim), factor_(op.factor), matrix_(std::ssize(*op.matrix) * 4) {
    kernels::cuda_upload(matrix_.data(), op.matrix->data(), matrix_.bytes(), nullptr);
    kernels::cuda_synchronize(nullptr);
  }
  void follow(const DequantOp& op, int64_t before, int64_t after, UploadBatch& uploads) override {
    const auto& said = std::get<AddSketch>(op);
    const int64_t sign_words = heads_ * head_dim_ / 16, count = after - before;
    signs_.append(said.signs.data() + before * sign_words, count * sign_words, uploads);
    lengths_.append(said.lengths.data() + before * heads_, count * heads_, uploads);
  }
  void apply(RowsAtWork& work, int64_t first, CudaScratch& /*scratch*/, CudaStream stream) const override {
    kernels::add_signed_rows_cuda(work.rows,
                                  {.signs = signs_.data() + first * heads_ * head_dim_ / 16,
                                   .lengths = lengths_.data() + first * heads_,
                                   .matrix = static_cast<const float*>(matrix_.data()),
                                   .factor = factor_},
                                  stream);
  }
  [[nodiscard]] int64_t bytes() const override { return signs_.bytes() + lengths_.bytes() + matrix_.bytes(); }

 private:
  int64_t heads_, head_dim_;
  float factor_;
  kernels::CudaBuffer matrix_;      // [head_dim, head_dim]
  GrowingArray<uint16_t> signs_;    // [entries, heads, head_dim / 16]
  GrowingArray<uint16_t> lengths_;  // [entries, heads], f16
};

class DeviceUndoTransform final : public DeviceDequantOp {
 public:
  explicit DeviceUndoTransform(HeadMapsPtr maps) : maps_(std::move(maps)) {}
  void apply(RowsAtWork& work, int64_t /*first*/, CudaScratch& /*scratch*/, CudaStream stream) const override {
    maps_->apply(work.rows.x, work.rows.width(), work.rows.count, work.rows.heads, work.spare, stream);
    std::swap(work.rows.x, work.spare);
  }

 private:
  HeadMapsPtr maps_;
};

class DeviceHadamardBlocks final : public DeviceDequantOp {
 public:
  explicit DeviceHadamardBlocks(int64_t run) : run_(run) {}
  void apply(RowsAtWork& work, int64_t /*first*/, CudaScratch& /*scratch*/, CudaStream stream) const override {
    kernels::hadamard_cuda(work.rows.x, work.rows.count * (work.rows.width() / run_), run_, run_, stream);
  }

 private:
  int64_t run_;
};

/// Channels that no place is named for are not in the rows.
class DevicePermuteChannels final : public ChannelStep<PermuteChannels, int32_t> {
  void apply(RowsAtWork& work, int64_t /*first*/, CudaScratch& /*scratch*/, CudaStream stream) const override {
    const int64_t width = work.rows.width(), rows = work.rows.count;
    if (count() < width) kernels::cuda_clear(work.spare, rows * width * int64_t{sizeof(float)}, stream);
    if (count() > 0) {
      kernels::move_channels_cuda({.x = work.rows.x,
                                   .to = work.spare,
                                   .place = items(),
                                   .rows = rows,
                                   .n = count(),
                                   .x_stride = count(),
                                   .to_stride = width},
                                  stream);
    }
    std::swap(work.rows.x, work.spare);
  }
};

class DeviceRotateKeys final : public DeviceDequantOp {
 public:
  DeviceRotateKeys(int64_t heads, std::shared_ptr<RotationTable> table) : heads_(heads), table_(std::move(table)) {}
  void follow(const DequantOp& op, int64_t before, int64_t after, UploadBatch& uploads) override {
    const int64_t count = after - before;
    std::vector<int32_t> positions(static_cast<size_t>(count * heads_));
    for (int64_t h = 0; h < heads_; ++h) {
      const std::vector<int32_t> of_head = std::get<RotateKeys>(op).positions(h, before, count);
      for (int64_t i = 0; i < count; ++i) positions[i * heads_ + h] = of_head[i];
    }
    table_->reach(*std::ranges::max_element(positions));
    positions_.append(positions.data(), std::ssize(positions), uploads);
  }
  void apply(RowsAtWork& work, int64_t first, CudaScratch& /*scratch*/, CudaStream stream) const override {
    kernels::rotate_rows_cuda(work.rows,
                              {.positions = positions_.data() + first * heads_,
                               .cos = table_->cos(),
                               .sin = table_->sin(),
                               .half = table_->half()},
                              stream);
  }
  [[nodiscard]] int64_t bytes() const override { return positions_.bytes(); }

 private:
  int64_t heads_;
  std::shared_ptr<RotationTable> table_;
  GrowingArray<int32_t> positions_;  // [entries, heads]
};

/// One for each kind of step.
struct StepMaker {
  int64_t heads, head_dim;
  DequantShared* shared;

  using Made = std::unique_ptr<DeviceDequantOp>;
  Made operator()(const AddCodes& op) const { return std::make_unique<DeviceAddCodes>(op); }
  Made operator()(const ScaleChannels& /*op*/) const { return std::make_unique<DeviceScaleChannels>(); }
  Made operator()(const ScaleEntries& op) const { return std::make_unique<DeviceScaleEntries>(op); }
  Made operator()(const ScaleTiles& op) const { return std::make_unique<DeviceScaleTiles>(op, heads * head_dim); }
  Made operator()(const SparseOverride& /*op*/) const { return std::make_unique<DeviceSparseOverride>(); }
  Made operator()(const AddProducts& /*op*/) const { return std::make_unique<DeviceAddProducts>(); }
  Made operator()(const AddSketch& op) const { return std::make_unique<DeviceAddSketch>(op, heads, head_dim); }
  Made operator()(const UndoTransform& op) const {
    return std::make_unique<DeviceUndoTransform>(
        shared->maps.of(op.transform, HeadMaps::Use::attended, heads, head_dim));
  }
  Made operator()(const HadamardBlocks& op) const { return std::make_unique<DeviceHadamardBlocks>(op.run); }
  Made operator()(const PermuteChannels& /*op*/) const { return std::make_unique<DevicePermuteChannels>(); }
  Made operator()(const FromPolar& /*op*/) const { return std::make_unique<DeviceFromPolar>(); }
  Made operator()(const RotateKeys& op) const {
    return std::make_unique<DeviceRotateKeys>(heads, shared->rotation(*op.frequencies));
  }
};

}  // namespace

void RotationTable::reach(int32_t position) {
  if (position < rows_) return;
  const RotationTables& tables = rotation_tables_up_to(frequencies_, position);
  rows_ = std::ssize(tables.cos) / half();
  const int64_t bytes = std::ssize(tables.cos) * int64_t{sizeof(float)};
  kernels::cuda_synchronize(nullptr);  // nobody reads the old ones any more
  memory_ = kernels::CudaBuffer(2 * bytes);
  kernels::cuda_upload(memory_.data(), tables.cos.data(), bytes, nullptr);
  kernels::cuda_upload(static_cast<char*>(memory_.data()) + bytes, tables.sin.data(), bytes, nullptr);
  kernels::cuda_synchronize(nullptr);
}

std::shared_ptr<RotationTable> DequantShared::rotation(const std::vector<double>& frequencies) {
  std::shared_ptr<RotationTable>& table = rotations[frequencies];
  if (table == nullptr) table = std::make_shared<RotationTable>(frequencies);
  return table;
}

std::unique_ptr<DeviceDequantOp> make_step(const DequantOp& op, int64_t heads, int64_t head_dim,
                                           DequantShared& shared) {
  return std::visit(StepMaker{heads, head_dim, &shared}, op);
}

}  // namespace kvarena::device
