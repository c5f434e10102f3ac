#include "harness/engine/stored/saved_entries.h"

#include "kernels/common/parallel.h"

namespace kvarena {
namespace {

/// Entries first .. first+count-1 of a head, as cells.
void put_head(CacheWriter& to, const EntrySegment& from, int64_t head, int64_t first, int64_t count) {
  from.save(head, first, count, to.grow(static_cast<size_t>(from.saved_bytes(count))));
}

}  // namespace

void put_dense(CacheWriter& to, const EntrySegment& from, int64_t first, int64_t count) {
  to.put<int64_t>(count);
  to.put<int64_t>(count > 0 ? from.position(0, first) : 0);
  for (int64_t head = 0; head < from.shape().kv_heads && count > 0; ++head) put_head(to, from, head, first, count);
}

void put_ragged(CacheWriter& to, const EntrySegment& from) {
  for (int64_t head = 0; head < from.shape().kv_heads; ++head) {
    const std::vector<int32_t> positions = from.positions(head);
    to.put<int64_t>(static_cast<int64_t>(positions.size()));
    to.put_all(std::span<const int32_t>(positions));
    put_head(to, from, head, 0, static_cast<int64_t>(positions.size()));
  }
}

FoundEntries find_dense(CacheReader& from, EntrySegment& to) {
  FoundEntries found{.to = &to,
                     .heads = std::vector<EntrySegment::SavedHead>(static_cast<size_t>(to.shape().kv_heads))};
  const int64_t count = from.get_count(to.shape().entry_bytes());
  found.position = from.get<int64_t>();
  for (EntrySegment::SavedHead& head : found.heads) {
    head.count = count;
    head.bytes = from.take(static_cast<size_t>(to.saved_bytes(count)));
  }
  return found;
}

FoundEntries find_ragged(CacheReader& from, EntrySegment& to) {
  FoundEntries found{.to = &to};
  for (int64_t head = 0; head < to.shape().kv_heads; ++head) {
    EntrySegment::SavedHead& saved = found.heads.emplace_back();
    saved.count = from.get_count(static_cast<int64_t>(sizeof(int32_t)) + to.saved_bytes(1));
    from.get_vector(saved.positions, static_cast<size_t>(saved.count));
    saved.bytes = from.take(static_cast<size_t>(to.saved_bytes(saved.count)));
  }
  return found;
}

void take_in(std::span<const FoundEntries> found) {
  kernels::parallel_for(std::ssize(found), [&](int64_t i) {
    const FoundEntries& one = found[static_cast<size_t>(i)];
    one.to->append_saved(one.heads, one.position);
  });
}

}  // namespace kvarena
