// A block encodes one cell, or, of keys grouped along tokens, the cells of one group. A thread finds scale and zero of
// a group; codes of a cell meet in shared memory as bytes, and each thread packs whole dwords of them.
#include <algorithm>

#include "kernels/common/parallel.h"
#include "kernels/quantize/quantize_cuda.h"
#include "kernels/quantize/quantize_group.cuh"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 128, kLanes = static_cast<int>(kCell);

/// Entries begin .. end-1 of one cell, and the cell's codes [16][head_dim] in shared memory.
struct CellCodes {
  int64_t cell;
  int begin, end;
  uint8_t* codes;
};

__device__ const float* row_of(const RowEncode& call, int64_t entry) {
  return call.rows + (entry - call.position) * call.row_stride;
}

__device__ int64_t meta_at(const PackedEntries& p, int64_t entry, int64_t channel) {
  const int64_t group = p.format.group_size;
  if (!groups_in_tokens(p.kind, p.format)) return entry / group * p.head_dim + channel;
  return (entry / kCell * (p.head_dim / group) + channel / group) * kCell + entry % kCell;
}

__device__ void store_scale(const PackedEntries& to, int64_t at, float scale) {
  if (!has_byte_scales(to.format)) {
    to.scale[at] = to_meta(scale, to.format.meta);
  } else {
    reinterpret_cast<uint8_t*>(to.scale)[at] = to.format.rule == QuantRule::mx
                                                   ? static_cast<uint8_t>(exponent_bits(scale))
                                                   : to_fp8(scale, 3, -6, kLargestE4M3);
  }
}

__device__ GroupCoder coder_of(const PackedEntries& to, int64_t at, const DeviceGroup& group) {
  if (to.format.rule == QuantRule::given) {
    return {GroupCoder::Kind::given, scale_at(to, at), zero_at(to, at), 1, 0};
  }
  const GroupCoder coder = code_group(group, to.format);
  if (to.scale != nullptr) store_scale(to, at, coder.stored_scale);
  if (to.zero != nullptr) to.zero[at] = to_meta(coder.stored_zero, to.format.meta);
  return coder;
}

/// Groups along channels: a thread a group.
__device__ void code_tokens(const RowEncode& call, const CellCodes& cell) {
  const int64_t group = call.to.format.group_size, groups = call.to.head_dim / group;
  for (int64_t i = threadIdx.x; i < (cell.end - cell.begin) * groups; i += kThreads) {
    const int lane = cell.begin + static_cast<int>(i / groups);
    const int64_t entry = cell.cell * kCell + lane, channel = i % groups * group;
    const DeviceGroup numbers{row_of(call, entry) + channel, group, 1};
    const GroupCoder coder = coder_of(call.to, meta_at(call.to, entry, channel), numbers);
    uint8_t* codes = cell.codes + lane * call.to.head_dim + channel;
    for (int64_t c = 0; c < group; ++c) codes[c] = coder.code(call.to.format, numbers.at(c));
  }
}

/// Groups along tokens: a thread a channel, whose scale and zero are made or given.
__device__ void code_channel(const RowEncode& call, const CellCodes& cell, int64_t channel, const GroupCoder& coder) {
  for (int lane = cell.begin; lane < cell.end; ++lane) {
    const float x = row_of(call, cell.cell * kCell + lane)[channel];
    cell.codes[lane * call.to.head_dim + channel] = coder.code(call.to.format, x);
  }
}

/// Dwords of the cell from its codes; bits of entries that are not encoded stay.
__device__ void pack_cell(const PackedEntries& to, const CellCodes& cell) {
  const int bits = to.format.bits, dim = static_cast<int>(to.head_dim), per_entry = dim / kLanes;
  const int planes = static_cast<int>(packed_planes(to.head_dim, bits));
  const bool keys = to.kind == CellKind::keys;
  for (int i = static_cast<int>(threadIdx.x); i < planes * kLanes; i += kThreads) {
    const int lane = i % kLanes, first_bit = i / kLanes * 32;
    uint32_t word = 0, mask = 0;
    for (int j = first_bit / bits; j < dim && j * bits < first_bit + 32; ++j) {
      const int entry = keys ? lane : j / per_entry, channel = keys ? j : j % per_entry * kLanes + lane;
      if (entry < cell.begin || entry >= cell.end) continue;
      const uint32_t code = cell.codes[entry * dim + channel], ones = (1u << bits) - 1;
      const int shift = j * bits - first_bit;
      word |= shift >= 0 ? code << shift : code >> -shift;
      mask |= shift >= 0 ? ones << shift : ones >> -shift;
    }
    if (mask == 0) continue;
    uint32_t& packed = to.codes[cell.cell * planes * kLanes + i];
    packed = (packed & ~mask) | word;
  }
}

/// Cells that one block encodes: those of a token group, or one.
__host__ __device__ int64_t cells_per_block(const PackedEntries& to) {
  const bool whole_groups = !groups_in_tokens(to.kind, to.format) && to.format.rule != QuantRule::given;
  return whole_groups ? to.format.group_size / kCell : 1;
}
__host__ __device__ int64_t encode_blocks(const RowEncode& call) {
  if (call.count == 0) return 0;
  const int64_t cells = (call.position + call.count - 1) / kCell - call.position / kCell + 1;
  return cells / cells_per_block(call.to);
}

/// Grid: blocks, items.
__global__ void __launch_bounds__(kThreads) encode_kernel(const RowEncode* items) {
  const RowEncode& call = items[blockIdx.y];
  if (blockIdx.x >= encode_blocks(call)) return;
  auto* codes = shared_memory<uint8_t>();
  const PackedEntries& to = call.to;
  const bool in_tokens = groups_in_tokens(to.kind, to.format), given = to.format.rule == QuantRule::given;
  const int64_t cells = cells_per_block(to), first_cell = call.position / kCell + blockIdx.x * cells;
  constexpr int kMostChannels = 1024 / kThreads;
  GroupCoder coders[kMostChannels];  // coders of this thread's channels
  if (!in_tokens && !given) {
    for (int64_t c = threadIdx.x, i = 0; c < to.head_dim; c += kThreads, ++i) {
      const DeviceGroup numbers{row_of(call, first_cell * kCell) + c, to.format.group_size, call.row_stride};
      coders[i] = coder_of(to, meta_at(to, first_cell * kCell, c), numbers);
    }
  }
  for (int64_t k = 0; k < cells; ++k) {
    CellCodes cell{first_cell + k, 0, kLanes, codes};
    const int64_t before = call.position - cell.cell * kCell, after = before + call.count;
    if (before > 0) cell.begin = static_cast<int>(before);
    if (after < kCell) cell.end = static_cast<int>(after);
    if (in_tokens) {
      code_tokens(call, cell);
    } else {
      for (int64_t c = threadIdx.x, i = 0; c < to.head_dim; c += kThreads, ++i) {
        if (given) coders[i] = coder_of(to, meta_at(to, cell.cell * kCell, c), {});
        code_channel(call, cell, c, coders[i]);
      }
    }
    __syncthreads();
    pack_cell(to, cell);
    __syncthreads();
  }
}

/// Code of (entry, channel).
__device__ uint32_t code_at(const PackedEntries& p, int64_t entry, int channel) {
  const int bits = p.format.bits, row = static_cast<int>(entry % kCell);
  const bool keys = p.kind == CellKind::keys;
  const int lane = keys ? row : channel % kLanes;
  const int bit = (keys ? channel : row * static_cast<int>(p.head_dim / kCell) + channel / kLanes) * bits;
  const uint32_t* at = p.codes + (entry / kCell * packed_planes(p.head_dim, bits) + bit / 32) * kCell + lane;
  uint32_t code = at[0] >> (bit % 32);
  if (bit % 32 + bits > 32) code |= at[kLanes] << (32 - bit % 32);
  return code & ((1u << bits) - 1);
}

/// Grid: cells of the target, items.
__global__ void __launch_bounds__(kThreads) gather_packed_kernel(const PackedGather* items) {
  const PackedGather& gather = items[blockIdx.y];
  CellCodes cell{gather.position / kCell + blockIdx.x, 0, kLanes, shared_memory<uint8_t>()};
  const int64_t before = gather.position - cell.cell * kCell, after = before + gather.count;
  if (after <= 0 || gather.count == 0) return;
  if (before > 0) cell.begin = static_cast<int>(before);
  if (after < kCell) cell.end = static_cast<int>(after);
  const PackedEntries &from = gather.from, &to = gather.to;
  const int dim = static_cast<int>(to.head_dim);
  for (int i = static_cast<int>(threadIdx.x); i < (cell.end - cell.begin) * dim; i += kThreads) {
    const int lane = cell.begin + i / dim, channel = i % dim;
    const int64_t entry = cell.cell * kCell + lane, source = gather.index[entry - gather.position];
    cell.codes[lane * dim + channel] = static_cast<uint8_t>(code_at(from, source, channel));
    if (channel % to.format.group_size != 0) continue;
    const int64_t at = meta_at(to, entry, channel), source_at = meta_at(from, source, channel);
    if (to.scale != nullptr) store_scale(to, at, scale_at(from, source_at));
    if (to.zero != nullptr) to.zero[at] = from.zero[source_at];
  }
  __syncthreads();
  pack_cell(to, cell);
}

/// Number `i` of an item's rows.
__device__ float decoded_at(const RowDecode& item, int64_t i) {
  const int64_t entry = item.position + i / item.from.head_dim;
  const int c = static_cast<int>(i % item.from.head_dim);
  return decoded(item.from, meta_at(item.from, entry, c), code_at(item.from, entry, c));
}
__device__ float& row_at(const RowDecode& item, int64_t i) {
  return item.rows[i / item.from.head_dim * item.row_stride + i % item.from.head_dim];
}

/// Grid: blocks over count * head_dim, items; so are those that add.
__global__ void __launch_bounds__(kThreads) decode_kernel(const RowDecode* items) {
  const RowDecode& item = items[blockIdx.y];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < item.count * item.from.head_dim) row_at(item, i) = decoded_at(item, i);
}

/// An item, and the factor on what it decodes.
struct DecodeSum {
  RowDecode item;
  float factor = 1;
};
__global__ void __launch_bounds__(kThreads) add_decoded_kernel(const DecodeSum* sums) {
  const auto& [item, factor] = sums[blockIdx.y];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < item.count * item.from.head_dim) row_at(item, i) = fmaf(factor, decoded_at(item, i), row_at(item, i));
}

void require_valid(const PackedEntries& p) {
  const QuantFormat& f = p.format;
  require((f.bits >= 1 && f.bits <= 5) || f.bits == 8, "quantize: bits must be 1-5 or 8");
  require(f.meta != DType::f32, "quantize: scale and zero are stored in 16 bits");
  require(f.levels != Levels::codebook || f.codebook != nullptr, "quantize: a codebook is missing");
  require(p.head_dim > 0 && p.head_dim % kCell == 0 && p.head_dim <= 1024,
          "quantize: head_dim must be a multiple of 16 and at most 1024");
  require(f.group_size > 0 && f.group_size % kCell == 0, "quantize: group_size must be a positive multiple of 16");
  require(!groups_in_tokens(p.kind, f) || p.head_dim % f.group_size == 0,
          "quantize: head_dim must be a multiple of a group_size along channels");
  require(!has_byte_scales(f) || (f.bits == 4 && f.levels == Levels::codebook && groups_in_tokens(p.kind, f)),
          "quantize: 8-bit scales are for blocks of e2m1 along channels");
}

}  // namespace

void encode_rows_cuda(std::span<const RowEncode> items, CudaScratch& scratch, CudaStream stream) {
  int64_t blocks = 0, head_dim = 0;
  for (const RowEncode& item : items) {
    require_valid(item.to);
    const bool whole_groups =
        !groups_in_tokens(item.to.kind, item.to.format) && item.to.format.rule != QuantRule::given;
    const int64_t group = item.to.format.group_size;
    require(!whole_groups || (item.position % group == 0 && item.count % group == 0),
            "encode_rows: keys are encoded in whole groups");
    blocks = std::max(blocks, encode_blocks(item));
    head_dim = std::max(head_dim, item.to.head_dim);
  }
  launch_items(encode_kernel, items, blocks, kThreads, kCell * head_dim, scratch, stream);
}

void gather_packed_values_cuda(std::span<const PackedGather> items, CudaScratch& scratch, CudaStream stream) {
  int64_t blocks = 0, head_dim = 0;
  for (const PackedGather& item : items) {
    const PackedEntries &from = item.from, &to = item.to;
    require_valid(from);
    require(from.kind == CellKind::values && to.kind == CellKind::values && from.head_dim == to.head_dim &&
                from.format.bits == to.format.bits && from.format.group_size == to.format.group_size &&
                from.format.meta == to.format.meta && from.format.levels == to.format.levels &&
                from.format.rule == to.format.rule,
            "gather_packed_values: runs of different kinds");
    require(from.codes != to.codes, "gather_packed_values: on the device, into other memory only");
    if (item.count == 0) continue;
    blocks = std::max(blocks, (item.position + item.count - 1) / kCell - item.position / kCell + 1);
    head_dim = std::max(head_dim, to.head_dim);
  }
  launch_items(gather_packed_kernel, items, blocks, kThreads, kCell * head_dim, scratch, stream);
}

void decode_rows_cuda(std::span<const RowDecode> items, CudaScratch& scratch, CudaStream stream,
                      std::optional<float> added) {
  int64_t numbers = 0;
  for (const RowDecode& item : items) {
    require_valid(item.from);
    numbers = std::max(numbers, item.count * item.from.head_dim);
  }
  const unsigned blocks = blocks_for(numbers, kThreads);
  if (!added) return launch_items(decode_kernel, items, blocks, kThreads, 0, scratch, stream);
  std::vector<DecodeSum> sums;
  for (const RowDecode& item : items) sums.push_back({item, *added});
  launch_items(add_decoded_kernel, std::span<const DecodeSum>(sums), blocks, kThreads, 0, scratch, stream);
}

}  // namespace kvarena::kernels
