#include "harness/method/codec.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cache/overlay_view.h"
#include "harness/cache/shared_front.h"
#include "harness/core/error.h"

namespace kvarena {
namespace {

std::string check_group(kernels::CellKind kind, const kernels::QuantFormat& format, int64_t head_dim) {
  if (format.group_size % 16 != 0) {
    return fmt::format("group_size: found {}, expected a multiple of 16", format.group_size);
  }
  return kernels::groups_in_tokens(kind, format) ? group_size_problem(format.group_size, head_dim) : std::string();
}

}  // namespace

std::string QuantizingCodec::check_layer(const LayerContext& layer) const {
  const QuantizedFormat sides = format(layer);
  const int64_t head_dim = layer.cache.shape().head_dim;
  const std::string keys = check_group(kernels::CellKind::keys, sides.keys, head_dim);
  return keys.empty() ? check_group(kernels::CellKind::values, sides.values, head_dim) : keys;
}

std::unique_ptr<PackedSegment> QuantizingCodec::make_segment(const LayerContext& layer) const {
  return std::make_unique<QuantizedSegment>(layer.cache.shape(), format(layer), layer.cache.ledger());
}

void check_bits(const std::string& place, const char* key, int64_t bits, std::vector<std::string>& problems) {
  if ((bits >= 1 && bits <= 5) || bits == 8) return;
  problems.push_back(describe(
      {.place = fmt::format("{}.{}", place, key), .found = fmt::format("{}", bits), .expected = "1, 2, 3, 4, 5 or 8"}));
}

std::string group_size_problem(int64_t group_size, int64_t head_dim) {
  if (head_dim % group_size == 0) return {};
  return fmt::format("group_size: found {}, which does not divide the model's head_dim {}", group_size, head_dim);
}

RotaryKeys rotary_keys(const LayerContext& layer) {
  return RotaryKeys(layer.model == nullptr ? std::vector<double>{} : layer.model->rotation_of(layer.layer).inverse);
}

DType meta_type(const LayerShape& shape) { return shape.dtype == DType::bf16 ? DType::bf16 : DType::f16; }

CodecMethod::CodecMethod(std::string name, std::unique_ptr<Codec> codec)
    : PartMethod(std::move(codec)), name_(std::move(name)), sinks_(part_->default_sinks()) {}

void CodecMethod::parameters(ParameterVisitor& p) {
  part_->parameters(p);
  p("sinks", sinks_).min(0).doc("first entries that stay in 16 bits");
  p("over", over_).doc("a dropping method that acts on the prompt first; what it keeps is packed");
}

void CodecMethod::check(const std::string& place, std::vector<std::string>& problems) const {
  part_->check(place, problems);
  check_within(over_, place + ".over", problems);
  if (!over_ || over_->only_compresses()) return;
  problems.push_back(describe({.place = place + ".over.name",
                               .found = fmt::format("\"{}\"", over_.name()),
                               .expected = "a method that drops entries of the prompt and leaves later ones alone"}));
}

Needs CodecMethod::needs() const { return over_ ? combine(over_->needs(), part_->needs()) : part_->needs(); }

void CodecMethod::compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const {
  if (over_) over_->compress_all(layers, seen);
  for (size_t layer = 0; layer < layers.size(); ++layer) compress(layers[layer], seen[layer]);
}

void CodecMethod::compress(LayerContext& layer, const LayerObservations& seen) const {
  const std::string problem = part_->check_layer(layer);
  if (!problem.empty()) throw UserError(fmt::format("{}.{}", name_, problem));
  const EntrySegment& tail = layer.cache.tail();
  for (int64_t head = 1; head < layer.cache.shape().kv_heads; ++head) {
    if (tail.entries(head) == tail.entries(0)) continue;
    fail({.place = fmt::format("{}.over: layer {}", name_, layer.layer),
          .found =
              fmt::format("{} entries in kv head 0 and {} in kv head {}", tail.entries(0), tail.entries(head), head),
          .expected = "the same number in every head",
          .action = "choose a dropping method with one budget for all heads"});
  }
  if (!tail.ragged()) set_apart(layer, part_->exempt(layer, seen));
  after_append(layer);
}

void CodecMethod::set_apart(LayerContext& layer, const std::vector<int32_t>& entries) const {
  if (entries.empty() || !part_->packs(layer)) return;
  EntrySegment& tail = layer.cache.tail();
  std::vector<int32_t> apart;
  std::vector<int32_t> rest;
  for (int32_t i = 0; i < static_cast<int32_t>(tail.entries(0)); ++i) {
    const bool exempt = i < sinks_ || std::ranges::binary_search(entries, i);
    (exempt ? apart : rest).push_back(i);
  }
  const auto heads = static_cast<size_t>(layer.cache.shape().kv_heads);
  std::unique_ptr<Segment> exact = tail.clone(layer.cache.ledger());
  static_cast<EntrySegment&>(*exact).keep(std::vector(heads, apart));
  tail.keep(std::vector(heads, rest));
  layer.cache.insert_before_tail(std::move(exact));
}

/// Sinks that are still in the tail.
int64_t CodecMethod::waiting_sinks(const LayerCache& cache) const { return cache.segments().size() == 1 ? sinks_ : 0; }

PackedSegment* CodecMethod::start_packing(LayerContext& layer) const {
  LayerCache& cache = layer.cache;
  if (const int64_t count = waiting_sinks(cache); count > 0) set_front_apart(cache, count);
  std::unique_ptr<PackedSegment> packed = part_->make_segment(layer);
  PackedSegment* result = packed.get();
  cache.insert_packed(std::move(packed));
  return result;
}

void CodecMethod::select(LayerContext& layer, const LayerQueries& queries) const {
  if (queries.q_len == 1 && part_->has_views()) layer.cache.view = part_->view(layer.cache);
}

void CodecMethod::after_append(LayerContext& layer) const {
  if (!part_->packs(layer)) return;
  LayerCache& cache = layer.cache;
  PackedSegment* packed = cache.packed().empty() ? nullptr : cache.packed().front();
  const int64_t waiting = cache.tail().entries(0) - waiting_sinks(cache) - part_->key_residual();
  if (const int64_t full = waiting / part_->key_block() * part_->key_block(); full > 0) {
    if (packed == nullptr) packed = start_packing(layer);
    packed->take(cache.tail(), full);
    layer.activity.entries_packed += full * cache.shape().kv_heads;
  }
  if (packed == nullptr) return;
  const int64_t in_16_bits = packed->unpacked_values() + cache.tail().entries(0);
  const int64_t due = std::min(packed->unpacked_values(), in_16_bits - part_->value_residual());
  if (due > 0) packed->pack_values(due);
}

}  // namespace kvarena
