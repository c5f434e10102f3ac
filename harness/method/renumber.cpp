#include "harness/method/renumber.h"

#include <algorithm>

#include "harness/cache/codec_side_data.h"

namespace kvarena {

PreRotationKeys::PreRotationKeys(const PreRotationKeys& from, const LedgerPtr& ledger) : ledger_(ledger) {
  for (const Head& head : from.heads_) {
    heads_.push_back({.positions = {head.positions.begin(), head.positions.end(), LedgerAllocator<int32_t>(ledger)},
                      .keys = {head.keys.begin(), head.keys.end(), LedgerAllocator<float>(ledger)}});
  }
}

int64_t PreRotationKeys::bytes() const {
  int64_t total = 0;
  for (const Head& head : heads_) {
    total += static_cast<int64_t>(head.positions.capacity() * sizeof(int32_t) + head.keys.capacity() * sizeof(float));
  }
  return total;
}

std::vector<float> PreRotationKeys::keys_of(const EntrySegment& entries, int64_t kv_head, int64_t count) const {
  const int64_t d = entries.shape().head_dim;
  std::vector<float> keys(static_cast<size_t>(count * d));
  entries.read_some(kv_head, 0, count, keys.data(), nullptr, d);
  if (heads_.empty()) return keys;
  const Head& known = heads_[kv_head];
  for (int64_t i = 0; i < count; ++i) {
    const auto it = std::ranges::lower_bound(known.positions, entries.position(kv_head, i));
    if (it == known.positions.end() || *it != entries.position(kv_head, i)) continue;
    std::copy_n(known.keys.begin() + (it - known.positions.begin()) * d, d, keys.begin() + i * d);
  }
  return keys;
}

void renumber(EntrySegment& entries, const Rotation& rotation, int64_t next, PreRotationKeys& pre_rotation) {
  const LayerShape& shape = entries.shape();
  const int64_t d = shape.head_dim;
  const RotaryKeys rotary(rotation.inverse);
  std::vector<PreRotationKeys::Head> heads;
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    const int64_t front = next - entries.entries(head);
    std::vector<int32_t> moves;  // of the entries in front of the last gap: how far
    while (static_cast<int64_t>(moves.size()) < entries.entries(head)) {
      const auto i = static_cast<int64_t>(moves.size());
      const auto move = static_cast<int32_t>(front + i - entries.position(head, i));
      if (move == 0) break;
      moves.push_back(move);
    }
    const auto count = static_cast<int64_t>(moves.size());
    const std::vector<float> keys = pre_rotation.keys_of(entries, head, count);
    std::vector<float> rotated = keys;
    rotary.redo(rotated.data(), moves);
    PreRotationKeys::Head known{.positions = LedgerVector<int32_t>(LedgerAllocator<int32_t>(pre_rotation.ledger_)),
                                .keys = {keys.begin(), keys.end(), LedgerAllocator<float>(pre_rotation.ledger_)}};
    for (int64_t i = 0; i < count; ++i) {
      entries.overwrite(head, i, &rotated[i * d], nullptr);
      known.positions.push_back(entries.position(head, i));
    }
    heads.push_back(std::move(known));
  }
  pre_rotation.heads_ = std::move(heads);
}

}  // namespace kvarena
