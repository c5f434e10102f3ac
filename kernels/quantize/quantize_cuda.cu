// A block encodes one cell, or, of keys grouped along tokens, the cells of one group. A thread finds scale and zero of
// a group; codes of a cell meet in shared memory as bytes, and each thread packs whole dwords of them.
#include "kernels/common/parallel.h"
#include "kernels/quantize/quantize_cuda.h"
#include "kernels/quantize/quantize_group.cuh"

namespace kvarena::kernels {
namespace {

constexpr int kThreads = 128, kLanes = static_cast<int>(kCell);

struct EncodeCall {
  PackedEntries to;
  int64_t position, count;
  const float* rows;
  int64_t row_stride;
  int64_t cells_per_block;
};

/// Entries begin .. end-1 of one cell, and the cell's codes [16][head_dim] in shared memory.
struct CellCodes {
  int64_t cell;
  int begin, end;
  uint8_t* codes;
};

__device__ const float* row_of(const EncodeCall& call, int64_t entry) {
  return call.rows + (entry - call.position) * call.row_stride;
}

__device__ int64_t meta_at(const PackedEntries& p, int64_t entry, int64_t channel) {
  const int64_t group = p.format.group_size;
  if (!groups_in_tokens(p.kind, p.format)) return entry / group * p.head_dim + channel;
  return (entry / kCell * (p.head_dim / group) + channel / group) * kCell + entry % kCell;
}

__device__ GroupCoder coder_of(const PackedEntries& to, int64_t at, const DeviceGroup& group) {
  if (to.format.rule == QuantRule::given) {
    return {GroupCoder::Kind::given, scale_at(to, at), zero_at(to, at), 1, 0};
  }
  const GroupCoder coder = code_group(group, to.format);
  if (to.scale != nullptr) to.scale[at] = to_meta(coder.stored_scale, to.format.meta);
  if (to.zero != nullptr) to.zero[at] = to_meta(coder.stored_zero, to.format.meta);
  return coder;
}

/// Groups along channels: a thread a group.
__device__ void code_tokens(const EncodeCall& call, const CellCodes& cell) {
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
__device__ void code_channel(const EncodeCall& call, const CellCodes& cell, int64_t channel, const GroupCoder& coder) {
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

/// Grid: units of cells_per_block cells.
__global__ void __launch_bounds__(kThreads) encode_kernel(const __grid_constant__ EncodeCall call) {
  auto* codes = shared_memory<uint8_t>();
  const PackedEntries& to = call.to;
  const bool in_tokens = groups_in_tokens(to.kind, to.format), given = to.format.rule == QuantRule::given;
  const int64_t first_cell = call.position / kCell + blockIdx.x * call.cells_per_block;
  constexpr int kMostChannels = 1024 / kThreads;
  GroupCoder coders[kMostChannels];  // of this thread's channels
  if (!in_tokens && !given) {
    for (int64_t c = threadIdx.x, i = 0; c < to.head_dim; c += kThreads, ++i) {
      const DeviceGroup numbers{row_of(call, first_cell * kCell) + c, to.format.group_size, call.row_stride};
      coders[i] = coder_of(to, meta_at(to, first_cell * kCell, c), numbers);
    }
  }
  for (int64_t k = 0; k < call.cells_per_block; ++k) {
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

/// Grid: rows.
__global__ void __launch_bounds__(kThreads)
    decode_kernel(PackedEntries from, int64_t position, float* rows, int64_t row_stride) {
  const int64_t entry = position + blockIdx.x;
  const int bits = from.format.bits, lanes = kLanes;
  const uint32_t* planes = from.codes + entry / kCell * packed_planes(from.head_dim, bits) * kCell;
  for (int c = static_cast<int>(threadIdx.x); c < from.head_dim; c += kThreads) {
    const bool keys = from.kind == CellKind::keys;
    const int row = static_cast<int>(entry % kCell), lane = keys ? row : c % lanes;
    const int bit = (keys ? c : row * static_cast<int>(from.head_dim / kCell) + c / lanes) * bits, shift = bit % 32;
    const uint32_t* at = planes + bit / 32 * lanes + lane;
    uint32_t code = at[0] >> shift;
    if (shift + bits > 32) code |= at[lanes] << (32 - shift);
    rows[blockIdx.x * row_stride + c] = decoded(from, meta_at(from, entry, c), code & ((1u << bits) - 1));
  }
}

void require_valid(const PackedEntries& p) {
  const QuantFormat& f = p.format;
  require((f.bits >= 1 && f.bits <= 5) || f.bits == 8, "quantize: bits must be 1-5 or 8");
  require(f.meta != DType::f32, "quantize: scale and zero are stored in 16 bits");
  require(f.rule != QuantRule::midpoint || f.bits == 1, "quantize: midpoint style is for 1 bit");
  require(f.levels != Levels::codebook || f.codebook != nullptr, "quantize: a codebook is missing");
  require(p.head_dim > 0 && p.head_dim % kCell == 0 && p.head_dim <= 1024,
          "quantize: head_dim must be a multiple of 16 and at most 1024");
  require(f.group_size > 0 && f.group_size % kCell == 0, "quantize: group_size must be a positive multiple of 16");
  require(!groups_in_tokens(p.kind, f) || p.head_dim % f.group_size == 0,
          "quantize: head_dim must be a multiple of a group_size along channels");
}

}  // namespace

void encode_rows_cuda(const PackedEntries& to, int64_t position, int64_t count, const float* rows, int64_t row_stride,
                      CudaStream stream) {
  require_valid(to);
  if (count == 0) return;
  const bool whole_groups = !groups_in_tokens(to.kind, to.format) && to.format.rule != QuantRule::given;
  const int64_t group = to.format.group_size;
  require(!whole_groups || (position % group == 0 && count % group == 0),
          "encode_rows: keys are encoded in whole groups");
  const int64_t cells = (position + count - 1) / kCell - position / kCell + 1;
  const EncodeCall call{to, position, count, rows, row_stride, whole_groups ? group / kCell : 1};
  launch(encode_kernel, blocks_for(cells, call.cells_per_block), kThreads, kCell * to.head_dim, stream, call);
}

void decode_rows_cuda(const PackedEntries& from, int64_t position, int64_t count, float* rows, int64_t row_stride,
                      CudaStream stream) {
  require_valid(from);
  launch(decode_kernel, static_cast<unsigned>(count), kThreads, 0, stream, from, position, rows, row_stride);
}

}  // namespace kvarena::kernels
