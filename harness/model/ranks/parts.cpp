#include "harness/model/ranks/parts.h"

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {
namespace {

void add(std::vector<Part>& parts, HeadAttention& attention) {
  parts.insert(parts.end(), {Part(&attention.qkv), Part(&attention.output)});
}

void add(std::vector<Part>& parts, LatentAttention& attention) {
  if (attention.q_down) parts.emplace_back(&*attention.q_down);
  parts.insert(parts.end(), {Part(&attention.q), Part(&attention.latent), Part(&attention.to_latent),
                             Part(&attention.to_value), Part(&attention.output)});
}

void add(std::vector<Part>& parts, DenseFeedForward& mlp) { parts.emplace_back(&mlp); }

void add(std::vector<Part>& parts, SparseFeedForward& mlp) {
  for (DenseFeedForward& expert : mlp.experts) parts.emplace_back(&expert);
  if (mlp.shared) parts.emplace_back(&*mlp.shared);
}

/// Inputs of one row.
int64_t row_floats(const Part& part, const Share& to) {
  if (const auto* heads = std::get_if<HeadProjections*>(&part)) return to.of((*heads)->heads, 1).count() * (*heads)->k;
  return columns(part);
}

}  // namespace

std::vector<Part> parts_of(ModelWeights& weights) {
  std::vector<Part> parts{&weights.embedding};
  if (weights.lm_head) parts.emplace_back(&*weights.lm_head);
  for (LayerWeights& layer : weights.layers) {
    std::visit([&](auto& attention) { add(parts, attention); }, layer.attention);
    std::visit([&](auto& mlp) { add(parts, mlp); }, layer.mlp);
  }
  return parts;
}

int64_t input_floats(std::span<const Part> parts, const Order& order, const Share& to) {
  KVARENA_ASSERT(order.part >= 0 && order.part < std::ssize(parts), "an order for no part");
  switch (order.work) {
    case Order::Work::product: return order.rows * row_floats(parts[order.part], to);
    case Order::Work::read: return order.rows;
    case Order::Work::device_products: return order.rows * kTaskFloats;
    case Order::Work::stop:
    case Order::Work::connect_devices: return 0;
  }
  return 0;
}

int64_t order_floats(std::span<const Part> parts, int64_t ranks) {
  int64_t largest = 0;
  for (const Part& part : parts) {
    for (int64_t rank = 1; rank < ranks; ++rank) {
      largest = std::max(largest, row_floats(part, {.rank = rank, .ranks = ranks}));
    }
  }
  return kOrderHead + largest;
}

Introduction introduce(const Share& share, ModelWeights& weights, const std::string& fingerprint) {
  Introduction self{.rank = share.rank,
                    .ranks = share.ranks,
                    .parts = static_cast<int64_t>(parts_of(weights).size()),
                    .whole_bytes = weights.matrix_bytes,
                    .held_bytes = weights.held_bytes};
  KVARENA_ASSERT(fingerprint.size() == sizeof self.fingerprint, fingerprint);
  std::ranges::copy(fingerprint, self.fingerprint);
  return self;
}

RowRange held_rows(const Part& part, const Share& share) {
  if (const auto* projection = std::get_if<Projection*>(&part)) return share.of((*projection)->out);
  const HeadProjections& heads = *std::get<HeadProjections*>(part);
  const RowRange held = share.of(heads.heads, 1);
  return {.begin = held.begin * heads.n, .end = held.end * heads.n};
}

int64_t columns(const Part& part) {
  if (const auto* projection = std::get_if<Projection*>(&part)) return (*projection)->matrix.k();
  if (const auto* heads = std::get_if<HeadProjections*>(&part)) return (*heads)->k;
  return std::get<DenseFeedForward*>(part)->gate_up.matrix.k();
}

void read_row(const Part& part, int64_t row, float* out) {
  if (const auto* projection = std::get_if<Projection*>(&part)) {
    (*projection)->matrix.unpack_row(row - (*projection)->held.begin, out);
    return;
  }
  const HeadProjections& heads = *std::get<HeadProjections*>(part);
  heads.matrices[row / heads.n - heads.held.begin].unpack_row(row % heads.n, out);
}

}  // namespace kvarena
