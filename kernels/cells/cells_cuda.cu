// A block writes one cell of the target, its threads in the order in which the cell lies in memory; of rows that go to
// places of their own it takes as many as a cell has.
#include <algorithm>

#include "kernels/cells/cells_cuda.h"
#include "kernels/common/parallel.h"
#include "kernels/cuda/numbers.cuh"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 256;

/// Element `i` of a cell: which lane and channel it is.
struct Place {
  int64_t lane, channel;
};
__device__ Place place_of(const Cells& cells, int64_t i) {
  if (cells.kind == CellKind::keys) return {i % kCell, i / kCell};
  return {i / cells.head_dim, i % cells.head_dim};
}

__device__ void store_number(const Cells& to, int64_t at, float x) {
  switch (to.dtype) {
    case DType::f32: static_cast<float*>(to.data)[at] = x; return;
    case DType::f16: static_cast<uint16_t*>(to.data)[at] = F16::narrow(x); return;
    case DType::bf16: static_cast<uint16_t*>(to.data)[at] = BF16::narrow(x); return;
  }
}

/// Rows that each go to a place of their own.
__device__ void scatter_rows(const RowStore& store, int64_t first) {
  const int64_t dim = store.to.head_dim, left = store.count - first, rows = left < kCell ? left : kCell;
  for (int64_t i = threadIdx.x; i < rows * dim; i += kThreads) {
    const int64_t row = first + i / dim, channel = i % dim;
    store_number(store.to, cell_offset(store.to.kind, dim, store.places[row], channel),
                 store.rows[row * store.row_stride + channel]);
  }
}

/// Grid: cells, stores.
__global__ void __launch_bounds__(kThreads) store_kernel(const RowStore* stores) {
  const RowStore& store = stores[blockIdx.y];
  if (store.places != nullptr) return scatter_rows(store, blockIdx.x * kCell);
  const int64_t position = store.position + (store.before == nullptr ? 0 : *store.before);
  const int64_t cell = position / kCell + blockIdx.x, end = position + store.count;
  if (cell * kCell >= end) return;
  for (int64_t i = threadIdx.x; i < kCell * store.to.head_dim; i += kThreads) {
    const Place place = place_of(store.to, i);
    const int64_t entry = cell * kCell + place.lane;
    if (entry < position || entry >= end) continue;
    store_number(store.to, cell * kCell * store.to.head_dim + i,
                 store.rows[(entry - position) * store.row_stride + place.channel]);
  }
}

__device__ float load_number(const Cells& from, int64_t at) {
  switch (from.dtype) {
    case DType::f32: return static_cast<const float*>(from.data)[at];
    case DType::f16: return F16::widen(static_cast<const uint16_t*>(from.data)[at]);
    case DType::bf16: return BF16::widen(static_cast<const uint16_t*>(from.data)[at]);
  }
  return 0;
}

/// Grid: cells, loads. In the order of the cell: what lies together is read together.
__global__ void __launch_bounds__(kThreads) load_kernel(const RowLoad* loads) {
  const RowLoad& load = loads[blockIdx.y];
  const int64_t cell = load.position / kCell + blockIdx.x, end = load.position + load.count;
  if (cell * kCell >= end) return;
  for (int64_t i = threadIdx.x; i < kCell * load.from.head_dim; i += kThreads) {
    const Place place = place_of(load.from, i);
    const int64_t entry = cell * kCell + place.lane;
    if (entry < load.position || entry >= end) continue;
    load.rows[(entry - load.position) * load.row_stride + place.channel] =
        load_number(load.from, cell * kCell * load.from.head_dim + i);
  }
}

template <class Bits>
__device__ void gather_cell(const EntryGather& gather, int64_t cell) {
  const auto* from = static_cast<const Bits*>(gather.from.data);
  auto* to = static_cast<Bits*>(gather.to.data) + cell * kCell * gather.to.head_dim;
  for (int64_t i = threadIdx.x; i < kCell * gather.to.head_dim; i += kThreads) {
    const Place place = place_of(gather.to, i);
    const int64_t listed = cell * kCell + place.lane - gather.position;
    if (listed < 0 || listed >= gather.count) continue;
    to[i] = from[cell_offset(gather.from.kind, gather.from.head_dim, gather.index[listed], place.channel)];
  }
}

/// Grid: cells, gathers.
__global__ void __launch_bounds__(kThreads) gather_kernel(const EntryGather* gathers) {
  const EntryGather& gather = gathers[blockIdx.y];
  const int64_t cell = gather.position / kCell + blockIdx.x;
  if (cell * kCell >= gather.position + gather.count) return;
  if (gather.to.dtype == DType::f32) {
    gather_cell<uint32_t>(gather, cell);
  } else {
    gather_cell<uint16_t>(gather, cell);
  }
}

/// One cell of the target: entries to shared memory 16 bytes at a time where they lie in a row, then in the order of
/// the cell.
template <class Bits>
__device__ void merge_cell(const EntryMerge& merge, int64_t cell) {
  constexpr int kVectorNumbers = 16 / static_cast<int>(sizeof(Bits));
  const int dim = static_cast<int>(merge.to.head_dim), stride = dim + kVectorNumbers;
  const int64_t left = merge.count - cell * kCell;
  const int entries = static_cast<int>(left < kCell ? left : kCell), vectors = dim / kVectorNumbers;
  auto* rows = shared_memory<Bits>();  // [16][stride]
  for (int i = static_cast<int>(threadIdx.x); i < entries * vectors; i += kThreads) {
    const int row = i / vectors, channel = i % vectors * kVectorNumbers;
    const int64_t listed = cell * kCell + row, source = merge.source == nullptr ? ~listed : merge.source[listed];
    const Cells& from = source < 0 ? merge.far : merge.near;
    const int64_t entry = source < 0 ? ~source : source;
    const auto* data = static_cast<const Bits*>(from.data);
    if (from.kind == CellKind::values) {
      *reinterpret_cast<uint4*>(rows + row * stride + channel) = load_16_bytes(data + entry * dim + channel);
    } else {
      for (int c = channel; c < channel + kVectorNumbers; ++c) {
        rows[row * stride + c] = data[cell_offset(CellKind::keys, dim, entry, c)];
      }
    }
  }
  __syncthreads();
  auto* to = static_cast<Bits*>(merge.to.data) + cell * kCell * dim;
  for (int64_t i = threadIdx.x; i < kCell * dim; i += kThreads) {
    const Place place = place_of(merge.to, i);
    if (place.lane < entries) to[i] = rows[place.lane * stride + place.channel];
  }
}

/// Grid: cells, merges.
__global__ void __launch_bounds__(kThreads) merge_kernel(const EntryMerge* merges) {
  const EntryMerge& merge = merges[blockIdx.y];
  if (blockIdx.x * kCell >= merge.count) return;
  if (merge.to.dtype == DType::f32) {
    merge_cell<uint32_t>(merge, blockIdx.x);
  } else {
    merge_cell<uint16_t>(merge, blockIdx.x);
  }
}

void require_run(const Cells& cells) {
  require(cells.head_dim > 0 && cells.head_dim % kCell == 0, "cells: head_dim must be a positive multiple of 16");
}

int64_t touched_cells(int64_t position, int64_t count) {
  return count == 0 ? 0 : (position + count - 1) / kCell - position / kCell + 1;
}

int64_t touched_cells(const RowStore& store) {
  if (store.places != nullptr) return touched_cells(0, store.count);
  if (store.before == nullptr) return touched_cells(store.position, store.count);
  return store.count == 0 ? 0 : (store.count + kCell - 2) / kCell + 1;  // wherever it begins
}
int64_t touched_cells(const RowLoad& load) { return touched_cells(load.position, load.count); }
int64_t touched_cells(const EntryGather& gather) { return touched_cells(gather.position, gather.count); }

template <class Item>
int64_t most_cells(std::span<const Item> items) {
  int64_t cells = 0;
  for (const Item& item : items) cells = std::max(cells, touched_cells(item));
  return cells;
}

}  // namespace

void store_rows_cuda(std::span<const RowStore> stores, CudaScratch& scratch, CudaStream stream) {
  for (const RowStore& store : stores) require_run(store.to);
  launch_items(store_kernel, stores, most_cells(stores), kThreads, 0, scratch, stream);
}

void load_rows_cuda(std::span<const RowLoad> loads, CudaScratch& scratch, CudaStream stream) {
  for (const RowLoad& load : loads) {
    require(load.from.head_dim > 0 && (load.from.kind == CellKind::keys || load.from.head_dim % kCell == 0),
            "load_rows: no channels, or values whose head_dim is no multiple of 16");
  }
  launch_items(load_kernel, loads, most_cells(loads), kThreads, 0, scratch, stream);
}

void gather_entries_cuda(std::span<const EntryGather> gathers, CudaScratch& scratch, CudaStream stream) {
  for (const EntryGather& gather : gathers) {
    const Cells &a = gather.from, &b = gather.to;
    require_run(a);
    require(a.kind == b.kind && a.dtype == b.dtype && a.head_dim == b.head_dim, "cells: runs of different kinds");
    require(a.data != b.data, "gather_entries: on the device, into other memory only");
  }
  launch_items(gather_kernel, gathers, most_cells(gathers), kThreads, 0, scratch, stream);
}

void merge_entries_cuda(std::span<const EntryMerge> merges, CudaScratch& scratch, CudaStream stream) {
  int64_t cells = 0, shared = 0;
  for (const EntryMerge& merge : merges) {
    for (const Cells* from : {&merge.near, &merge.far}) {
      require_run(*from);
      require(from->dtype == merge.to.dtype && from->head_dim == merge.to.head_dim, "cells: runs of different kinds");
      require(from->data != merge.to.data, "merge_entries: into other memory only");
    }
    cells = std::max(cells, cells_for(merge.count));
    shared = std::max(shared, kCell * (merge.to.head_dim * size_of(merge.to.dtype) + 16));
  }
  launch_items(merge_kernel, merges, cells, kThreads, shared, scratch, stream);
}

}  // namespace kvarena::kernels
