#include "harness/cache/latent_segment.h"

#include <algorithm>

#include "kernels/entry_rows/small_product.h"

namespace kvarena {
namespace {

using kernels::f16_to_f32;
using kernels::f32_to_f16;

/// Cells hold no channel of a side; its numbers are products of latents and directions.
std::vector<DequantOp> products(const LatentEntries& latents, const LatentBasis& basis, bool keys, int64_t kv_heads) {
  const auto read = [&latents, &basis, keys, kv_heads](int64_t first, int64_t count,
                                                       std::vector<AddProducts::Block>& to) {
    AddProducts::Block block{.first = first, .count = count, .rank = basis.rank(), .a = {}, .b = {}};
    for (int64_t h = 0; h < kv_heads; ++h) {
      const std::span<const uint16_t> all = keys ? latents.keys(h / basis.group()) : latents.values(h / basis.group());
      block.a.push_back(
          all.subspan(static_cast<size_t>(first * basis.rank()), static_cast<size_t>(count * basis.rank())));
      block.b.push_back(basis.of(h));
    }
    to.push_back(std::move(block));
  };
  return in_order(PermuteChannels{[] { return std::vector<int32_t>(); }}, AddProducts{read});
}

}  // namespace

LatentBasis::LatentBasis(const LayerShape& shape, int64_t rank, int64_t group, std::span<const float> directions,
                         const LedgerPtr& ledger, bool model)
    : rank_(rank),
      group_(group),
      head_dim_(shape.head_dim),
      model_(model),
      directions_(ledger, Tier::device, std::ssize(directions) * int64_t{sizeof(uint16_t)}) {
  std::ranges::transform(directions, reinterpret_cast<uint16_t*>(directions_.data()), f32_to_f16);
}

LatentBasis::LatentBasis(const LatentBasis& from, const LedgerPtr& ledger)
    : rank_(from.rank_),
      group_(from.group_),
      head_dim_(from.head_dim_),
      model_(from.model_),
      directions_(from.directions_.clone(ledger)) {}

std::shared_ptr<const LatentBasis> LatentBasis::in(const std::shared_ptr<const LatentBasis>& basis,
                                                   const LedgerPtr& ledger) {
  if (basis->model_) return basis;
  return std::shared_ptr<const LatentBasis>(new LatentBasis(*basis, ledger));
}

std::span<const uint16_t> LatentBasis::of(int64_t kv_head) const {
  const int64_t numbers = rank_ * head_dim_;
  return {reinterpret_cast<const uint16_t*>(directions_.data()) + kv_head * numbers, static_cast<size_t>(numbers)};
}

std::vector<float> LatentBasis::latents(int64_t group, const std::vector<float>& rows, int64_t count) const {
  std::vector<float> along(static_cast<size_t>(count * rank_)), columns(static_cast<size_t>(head_dim_ * rank_));
  for (int64_t head = group * group_; head < (group + 1) * group_; ++head) {
    const std::span<const uint16_t> directions = of(head);
    for (int64_t r = 0; r < rank_; ++r) {
      for (int64_t c = 0; c < head_dim_; ++c) columns[c * rank_ + r] = f16_to_f32(directions[r * head_dim_ + c]);
    }
    kernels::add_product({.y = along.data(),
                          .y_stride = rank_,
                          .a = &rows[head * count * head_dim_],
                          .a_row_stride = head_dim_,
                          .b = columns.data(),
                          .rows = count,
                          .columns = rank_,
                          .rank = head_dim_});
  }
  return along;
}

LatentEntries::LatentEntries(int64_t kv_heads, int64_t key_groups, int64_t value_groups, LedgerPtr ledger)
    : ledger_(std::move(ledger)),
      positions_(kv_heads, ledger_),
      keys_(static_cast<size_t>(key_groups), LedgerVector<uint16_t>(LedgerAllocator<uint16_t>(ledger_))),
      values_(static_cast<size_t>(value_groups), LedgerVector<uint16_t>(LedgerAllocator<uint16_t>(ledger_))) {}

std::shared_ptr<LatentEntries> LatentEntries::copy_in(const LedgerPtr& ledger) const {
  if (auto made = last_copy_.lock(); made && made->ledger_ == ledger) return made;
  auto copy = std::make_shared<LatentEntries>(0, 0, 0, ledger);
  copy->positions_ = EntryPositions(positions_, ledger);
  for (const auto& [from, to] : {std::pair{&keys_, &copy->keys_}, std::pair{&values_, &copy->values_}}) {
    for (const auto& group : *from) to->emplace_back(group.begin(), group.end(), LedgerAllocator<uint16_t>(ledger));
  }
  last_copy_ = copy;
  return copy;
}

void LatentEntries::append(const std::vector<std::vector<int32_t>>& positions,
                           const std::vector<std::vector<float>>& keys, const std::vector<std::vector<float>>& values) {
  const auto add = [&](const std::vector<std::vector<float>>& next, Groups& to) {
    for (size_t group = 0; group < to.size(); ++group) {
      // A prompt takes its room at once, later entries a little more than they need.
      if (to[group].empty()) to[group].reserve(next[group].size());
      std::ranges::transform(next[group], std::back_inserter(to[group]), f32_to_f16);
    }
  };
  positions_.append(positions);
  add(keys, keys_);
  add(values, values_);
}

void LatentEntries::truncate(int64_t entries) {
  const auto before = static_cast<size_t>(positions_.entries());
  for (Groups* const side : {&keys_, &values_}) {
    for (auto& group : *side) group.resize(group.size() / before * static_cast<size_t>(entries));
  }
  positions_.truncate(entries);
}

int64_t LatentEntries::bytes() const {
  int64_t total = positions_.bytes();
  for (const Groups* const side : {&keys_, &values_}) {
    for (const auto& group : *side) total += static_cast<int64_t>(group.capacity() * sizeof(uint16_t));
  }
  return total;
}

LatentSegment::LatentSegment(const LayerShape& shape, Parts parts, LedgerPtr ledger)
    : PackedSegment(shape), parts_(std::move(parts)), ledger_(std::move(ledger)) {}

void LatentSegment::take(EntrySegment& tail, int64_t n) {
  EntryBlock block = front_of(tail, n);
  for (int64_t h = 0; h < block.kv_heads; ++h)
    parts_.rotary.undo(block.key(h, 0), block.positions[static_cast<size_t>(h)]);
  std::vector<std::vector<float>> keys, values;
  for (int64_t g = 0; g < block.kv_heads / parts_.keys->group(); ++g)
    keys.push_back(parts_.keys->latents(g, block.keys, n));
  for (int64_t g = 0; g < block.kv_heads / parts_.values->group(); ++g)
    values.push_back(parts_.values->latents(g, block.values, n));
  parts_.latents->append(block.positions, keys, values);
  tail.drop_front(n);
}

int64_t LatentSegment::bytes() const {
  return parts_.keys->bytes() + parts_.values->bytes() + (parts_.counts ? parts_.latents->bytes() : 0);
}

void LatentSegment::plan(const LayerQueries& /*queries*/, AttentionPlan& to) const {
  AttentionItem& item = to.add(*this);
  item.dtype = shape().dtype;
  item.runs.assign(static_cast<size_t>(shape().kv_heads), kernels::HeadRun{.entries = entries(0)});
  item.steps = {.keys = products(*parts_.latents, *parts_.keys, true, shape().kv_heads),
                .values = products(*parts_.latents, *parts_.values, false, shape().kv_heads)};
  parts_.rotary.add_dequant_op([this](int64_t kv_head, int64_t first,
                                      int64_t count) { return parts_.latents->positions().of(kv_head, first, count); },
                               item.steps.keys);
  item.sees = in_window_of(shape());
}

std::unique_ptr<Segment> LatentSegment::clone(const LedgerPtr& ledger) const {
  return std::make_unique<LatentSegment>(shape(),
                                         Parts{.latents = parts_.latents->copy_in(ledger),
                                               .keys = LatentBasis::in(parts_.keys, ledger),
                                               .values = LatentBasis::in(parts_.values, ledger),
                                               .rotary = parts_.rotary,
                                               .counts = parts_.counts},
                                         ledger);
}

void LatentSegment::rewind() {
  if (entries(0) > marked_) parts_.latents->truncate(marked_);
  change_version();
}

}  // namespace kvarena
