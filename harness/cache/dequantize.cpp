#include "harness/cache/dequantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "harness/cache/consecutive_runs.h"
#include "harness/cache/rotation_tables.h"
#include "kernels/cells/cells.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/entry_rows/small_product.h"
#include "kernels/hadamard/hadamard.h"
#include "kernels/rope/rope.h"

namespace kvarena {
namespace {

using kernels::CellKind;
using kernels::kCell;

/// One side of a chunk on its way through the steps.
struct ChunkSide {
  CellKind kind;
  int64_t kv_heads, head_dim, first, count;
  std::vector<float>* cells;
  std::vector<float>* spare;

  [[nodiscard]] int64_t width() const { return kv_heads * head_dim; }
  [[nodiscard]] int64_t cell_count() const { return kernels::cells_for(count); }
  [[nodiscard]] int64_t head_floats() const { return cell_count() * kCell * head_dim; }
  [[nodiscard]] float* head(int64_t h) const { return cells->data() + h * head_floats(); }
  [[nodiscard]] kernels::Cells cells_of(float* data) const {
    return {.kind = kind, .dtype = DType::f32, .head_dim = head_dim, .data = data};
  }
  /// Entry `i` of the chunk: channel c at the result plus c times channel_stride().
  [[nodiscard]] float* entry(int64_t h, int64_t i) const {
    return head(h) + kernels::cell_offset(kind, head_dim, i, 0);
  }
  [[nodiscard]] int64_t channel_stride() const { return kind == CellKind::keys ? kCell : 1; }
  /// Rows [count, heads * head_dim] of some heads, and back.
  void load(int64_t first_head, int64_t heads, float* rows) const {
    for (int64_t h = 0; h < heads; ++h)
      kernels::load_rows(cells_of(head(first_head + h)), 0, count, rows + h * head_dim, heads * head_dim);
  }
  void store(int64_t first_head, int64_t heads, const float* rows) const {
    for (int64_t h = 0; h < heads; ++h)
      kernels::store_rows(cells_of(head(first_head + h)), 0, count, rows + h * head_dim, heads * head_dim);
  }
};

void apply(const AddCodes& step, const ChunkSide& side) {
  side.spare->resize(static_cast<size_t>(side.head_floats()));
  for (int64_t h = 0; h < side.kv_heads; ++h) {
    kernels::decode_cells(step.heads[h], side.first / kCell, side.cell_count(), side.spare->data());
    float* const to = side.head(h);
    for (int64_t i = 0; i < side.head_floats(); ++i) to[i] += step.factor * (*side.spare)[i];
  }
}

void apply(const ScaleChannels& step, const ChunkSide& side) {
  const std::vector<kernels::RowScale> scales = step.read();
  const int64_t d = side.head_dim;
  for (int64_t h = 0; h < side.kv_heads; ++h) {
    const kernels::RowScale* const by = &scales[h * d];
    float* x = side.head(h);
    for (int64_t cell = 0; cell < side.cell_count(); ++cell) {
      if (side.kind == CellKind::keys) {
        for (int64_t c = 0; c < d; ++c, x += kCell) {
          for (int64_t i = 0; i < kCell; ++i) x[i] = x[i] * by[c].factor + by[c].offset;
        }
      } else {
        for (int64_t i = 0; i < kCell; ++i, x += d) {
          for (int64_t c = 0; c < d; ++c) x[c] = x[c] * by[c].factor + by[c].offset;
        }
      }
    }
  }
}

void apply(const ScaleEntries& step, const ChunkSide& side) {
  std::vector<kernels::RowScale> scales;
  step.read(side.first, side.count, scales);
  for (int64_t h = 0; h < side.kv_heads; ++h) {
    const auto of = [&](int64_t i) { return scales[step.shared ? i : i * side.kv_heads + h]; };
    for (int64_t i = 0; i < side.count && side.kind == CellKind::values; ++i) {
      float* const x = side.entry(h, i);
      for (int64_t c = 0; c < side.head_dim; ++c) x[c] = x[c] * of(i).factor + of(i).offset;
    }
    for (int64_t first = 0; first < side.count && side.kind == CellKind::keys; first += kCell) {
      std::array<float, kCell> factor{}, offset{};
      for (int64_t i = 0; i < std::min(kCell, side.count - first); ++i) {
        factor[i] = of(first + i).factor;
        offset[i] = of(first + i).offset;
      }
      float* x = side.entry(h, first);
      for (int64_t c = 0; c < side.head_dim; ++c, x += kCell) {
        for (int64_t i = 0; i < kCell; ++i) x[i] = x[i] * factor[i] + offset[i];
      }
    }
  }
}

void apply(const ScaleTiles& step, const ChunkSide& side) {
  const int64_t first = side.first / step.tile, d = side.head_dim, stride = side.channel_stride();
  std::vector<kernels::RowScale> scales;
  step.read(first, (side.first + side.count - 1) / step.tile + 1 - first, scales);
  for (int64_t i = 0; i < side.count; ++i) {
    const kernels::RowScale* by = &scales[((side.first + i) / step.tile - first) * side.width()];
    for (int64_t h = 0; h < side.kv_heads; ++h, by += d) {
      float* const x = side.entry(h, i);
      for (int64_t c = 0; c < d; ++c) x[c * stride] = x[c * stride] * by[c].factor + by[c].offset;
    }
  }
}

void apply(const SparseOverride& step, const ChunkSide& side) {
  SparseOverride::Numbers numbers;
  step.read(side.first, side.count, numbers);
  const kernels::PlacedNumber* at = numbers.values.data();
  for (int64_t i = 0; i < side.count; ++i) {
    for (int32_t k = 0; k < numbers.counts[i]; ++k, ++at) {
      const int64_t h = at->channel / side.head_dim, c = at->channel % side.head_dim;
      side.entry(h, i)[c * side.channel_stride()] = at->value;
    }
  }
}

/// Numbers [rows, columns], [columns, rows].
void transpose(const std::vector<float>& from, int64_t rows, int64_t columns, std::vector<float>& to) {
  to.resize(from.size());
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) to[c * rows + r] = from[r * columns + c];
  }
}

/// Adds them to values as rows, to keys a cell at a time, whose columns are entries. Heads may share their entries'
/// factors.
void add_block(const AddProducts::Block& block, int64_t begin, int64_t end, const ChunkSide& side) {
  const int64_t d = side.head_dim, rank = block.rank;
  const bool keys = side.kind == CellKind::keys;
  const auto widened = [](std::span<const uint16_t> from, std::vector<float>& to) {
    to.resize(from.size());
    kernels::widen(from.data(), DType::f16, std::ssize(from), to.data());
  };
  std::vector<std::vector<float>> b(static_cast<size_t>(side.kv_heads));  // [rank, head_dim] each
  for (int64_t h = 0; h < side.kv_heads; ++h) widened(block.b[h], b[h]);
  std::vector<float> a, turned;
  for (int64_t e = begin, count = 0; e < end; e += count) {
    count = keys ? std::min(kCell - (e - side.first) % kCell, end - e) : end - e;
    for (int64_t h = 0; h < side.kv_heads; ++h) {
      if (h == 0 || block.a[h].data() != block.a[h - 1].data()) {
        widened(block.a[h].subspan(static_cast<size_t>((e - block.first) * rank), static_cast<size_t>(count * rank)),
                a);
        if (keys) transpose(a, count, rank, turned);
      }
      float* const y = side.entry(h, e - side.first);
      if (keys) {
        kernels::add_product({.y = y,
                              .y_stride = kCell,
                              .a = b[h].data(),
                              .a_row_stride = 1,
                              .a_stride = d,
                              .b = turned.data(),
                              .rows = d,
                              .columns = count,
                              .rank = rank});
      } else {
        kernels::add_product({.y = y,
                              .y_stride = d,
                              .a = a.data(),
                              .a_row_stride = rank,
                              .a_stride = 1,
                              .b = b[h].data(),
                              .rows = count,
                              .columns = d,
                              .rank = rank});
      }
    }
  }
}

void apply(const AddProducts& step, const ChunkSide& side) {
  std::vector<AddProducts::Block> blocks;
  step.read(side.first, side.count, blocks);
  for (const AddProducts::Block& block : blocks) {
    const int64_t begin = std::max(side.first, block.first);
    const int64_t end = std::min(side.first + side.count, block.first + block.count);
    add_block(block, begin, end, side);
  }
}

void apply(const AddSketch& step, const ChunkSide& side) {
  const int64_t d = side.head_dim, stride = side.channel_stride();
  std::vector<float> row(static_cast<size_t>(d));
  for (int64_t i = 0; i < side.count; ++i) {
    for (int64_t h = 0; h < side.kv_heads; ++h) {
      const int64_t at = (side.first + i) * side.kv_heads + h;
      const float length = step.factor * kernels::f16_to_f32(step.lengths[at]);
      float* const x = side.entry(h, i);
      for (int64_t c = 0; c < d; ++c) row[c] = x[c * stride];
      for (int64_t bit = 0; bit < d; ++bit) {
        const bool negative = (step.signs[at * d / 16 + bit / 16] >> (bit % 16) & 1) != 0;
        const float weight = negative ? -length : length;
        for (int64_t c = 0; c < d; ++c) row[c] += weight * (*step.matrix)[bit * d + c];
      }
      for (int64_t c = 0; c < d; ++c) x[c * stride] = row[c];
    }
  }
}

/// Values lie as rows.
void apply(const UndoTransform& step, const ChunkSide& side) {
  side.spare->resize(static_cast<size_t>(side.count * side.head_dim));
  for (int64_t h = 0; h < side.kv_heads; ++h) {
    if (side.kind == CellKind::values) {
      step.transform->undo(h, side.head(h), side.count);
      continue;
    }
    side.load(h, 1, side.spare->data());
    step.transform->undo(h, side.spare->data(), side.count);
    side.store(h, 1, side.spare->data());
  }
}

/// Runs within a head where they lie, others as rows of as many heads at a time as whole runs cover.
void apply(const HadamardBlocks& step, const ChunkSide& side) {
  const int64_t heads = step.run / std::gcd(step.run, side.head_dim), width = heads * side.head_dim;
  for (int64_t h = 0; h < side.kv_heads && heads == 1; ++h) {
    const int64_t runs = width / step.run;
    if (side.kind == CellKind::values) {
      kernels::hadamard(side.head(h), side.count * runs, step.run, step.run);
    } else {
      kernels::hadamard_lanes(side.head(h), side.cell_count() * runs, step.run, step.run * kCell);
    }
  }
  if (heads == 1) return;
  side.spare->resize(static_cast<size_t>(side.count * width));
  for (int64_t first = 0; first < side.kv_heads; first += heads) {
    side.load(first, heads, side.spare->data());
    kernels::hadamard(side.spare->data(), side.count * (width / step.run), step.run, step.run);
    side.store(first, heads, side.spare->data());
  }
}

/// The lanes of a channel, 16 entries of keys at a time. Fewer places than channels are those of each head's first
/// ones.
void apply(const PermuteChannels& step, const ChunkSide& side) {
  const std::vector<int32_t> places = step.read();
  const int64_t d = side.head_dim, cell = d * kCell, named = std::ssize(places) / side.kv_heads;
  if (named < d) side.spare->clear();
  side.spare->resize(side.cells->size());
  for (int64_t i = 0; i < std::ssize(places); ++i) {
    const int64_t from = i / named * d + i % named, to = places[i];
    const auto offset = [&](int64_t channel) {
      return channel / d * side.head_floats() + channel % d * side.channel_stride();
    };
    const float* const x = side.cells->data() + offset(from);
    float* const y = side.spare->data() + offset(to);
    for (int64_t at = 0; at < side.cell_count() * cell; at += cell) {
      if (side.kind == CellKind::keys) {
        std::copy_n(x + at, kCell, y + at);
      } else {
        for (int64_t i = at; i < at + cell; i += d) y[i] = x[i];
      }
    }
  }
  std::swap(*side.cells, *side.spare);
}

/// A cell of keys has its lengths side by side, one of values has those of each entry.
void apply(const FromPolar& /*step*/, const ChunkSide& side) {
  const int64_t half = side.head_dim / 2, together = half * side.channel_stride();
  for (int64_t h = 0; h < side.kv_heads; ++h) {
    float* const end = side.head(h) + side.head_floats();
    for (float* x = side.head(h); x != end; x += 2 * together) kernels::from_polar(x, x + together, together);
  }
}

void apply(const RotateKeys& step, const ChunkSide& side) {
  const auto half = std::ssize(*step.frequencies);
  for (int64_t h = 0; h < side.kv_heads; ++h) {
    const std::vector<int32_t> positions = step.positions(h, side.first, side.count);
    const RotationTables& tables = rotation_tables_up_to(*step.frequencies, *std::ranges::max_element(positions));
    const kernels::Cells keys = side.cells_of(side.head(h));
    const auto rotate = [&](int64_t i, int64_t count, int64_t stride) {
      const int64_t row = positions[i] * half;
      kernels::rotate_cells(keys, i, count, &tables.cos[row], &tables.sin[row], half, stride);
    };
    // A chunk that was moved turns by one angle; runs of consecutive positions lie side by side in the tables, and as
    // cells where both begin with one.
    if (std::ranges::all_of(positions, [&](int32_t position) { return position == positions.front(); })) {
      rotate(0, side.count, 0);
      continue;
    }
    each_consecutive_run(positions, [&](int64_t i, int64_t count) {
      const int64_t position = positions[i];
      if (i % kCell != 0 || position % kCell != 0) return rotate(i, count, half);
      const int64_t cells = i + count == side.count ? kernels::cells_for(count) : count / kCell;
      const float *const cos = &tables.cell_cos[position * half], *const sin = &tables.cell_sin[position * half];
      kernels::rotate_whole_cells(keys, i / kCell, cells, cos, sin, half);
      if (cells * kCell < count) rotate(i + cells * kCell, count - cells * kCell, half);
    });
  }
}

/// Whole cells of `channels` each, to the first channels of a head's f32 cells; of values all or none.
void widen_cells(const void* from, DType dtype, int64_t channels, int64_t cells, const ChunkSide& side, int64_t h) {
  const int64_t numbers = channels * kCell;
  const auto* at = static_cast<const std::byte*>(from);
  for (int64_t cell = 0; cell < cells; ++cell, at += numbers * kernels::size_of(dtype))
    kernels::widen(at, dtype, numbers, side.head(h) + cell * side.head_dim * kCell);
}

/// Stored numbers of a chunk as f32 cells, of heads that reach into it; whole cells are widened, and those of codes
/// decoded, where they will lie.
void load_chunk(const AttentionItem& item, const ChunkSide& side) {
  std::vector<float> rows;
  const bool keys = side.kind == CellKind::keys;
  const int64_t channels = stored_channels(item, side.kind);
  for (int64_t h = 0; h < side.kv_heads; ++h) {
    const kernels::HeadRun& run = item.runs[h];
    const int64_t packed = keys ? run.packed_key_count : run.packed_value_count;
    if (packed == 0) {
      const int64_t before = side.first * channels * kernels::size_of(item.dtype);
      widen_cells(static_cast<const std::byte*>(keys ? run.keys : run.values) + before, item.dtype, channels,
                  kernels::cells_for(std::clamp<int64_t>(run.entries - side.first, 0, side.count)), side, h);
      continue;
    }
    if (side.first + side.count <= packed) {
      const kernels::PackedEntries& codes = keys ? *run.packed_keys : *run.packed_values;
      kernels::decode_cells(codes, side.first / kCell, side.cell_count(), side.head(h));
      continue;
    }
    rows.resize(static_cast<size_t>(side.count * side.head_dim));
    load_stored({.kind = side.kind, .dtype = item.dtype, .head_dim = side.head_dim}, run, side.first, side.count,
                rows.data());
    side.store(h, 1, rows.data());
  }
}

}  // namespace

int64_t stored_channels(const AttentionItem& item, CellKind kind) {
  const std::vector<DequantOp>& steps = kind == CellKind::keys ? item.steps.keys : item.steps.values;
  const auto* const places = steps.empty() ? nullptr : std::get_if<PermuteChannels>(&steps.front());
  const LayerShape& shape = item.from->shape();
  return places != nullptr ? std::ssize(places->read()) / shape.kv_heads : shape.head_dim;
}

void load_stored(kernels::Cells like, const kernels::HeadRun& run, int64_t first, int64_t count, float* rows) {
  const bool keys = like.kind == CellKind::keys;
  const int64_t d = like.head_dim, packed = keys ? run.packed_key_count : run.packed_value_count;
  const int64_t coded = std::clamp<int64_t>(packed - first, 0, count);
  if (coded > 0) kernels::decode_rows(keys ? *run.packed_keys : *run.packed_values, first, coded, rows, d);
  like.data = const_cast<void*>(keys ? run.keys : run.values);  // only read
  if (coded < count) kernels::load_rows(like, first + coded - packed, count - coded, rows + coded * d, d);
}

void dequantize(const AttentionItem& item, DequantChunk& chunk) {
  const LayerShape& shape = item.from->shape();
  const int64_t floats = kernels::cells_for(chunk.count) * kCell * shape.head_dim * shape.kv_heads;
  for (const CellKind kind : {CellKind::keys, CellKind::values}) {
    const bool keys = kind == CellKind::keys;
    std::vector<float>& cells = keys ? chunk.keys : chunk.values;
    cells.resize(static_cast<size_t>(floats));
    const ChunkSide side{kind, shape.kv_heads, shape.head_dim, chunk.first, chunk.count, &cells, &chunk.spare};
    load_chunk(item, side);
    for (const DequantOp& step : keys ? item.steps.keys : item.steps.values)
      std::visit([&](const auto& op) { apply(op, side); }, step);
  }
}

}  // namespace kvarena
