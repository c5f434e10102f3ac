#pragma once
// Entries of a segment in stored bytes: written, found, and copied into cells on all cores.

#include <optional>
#include <span>
#include <vector>

#include "harness/cache/byte_stream.h"
#include "harness/cache/entry_segment.h"

namespace kvarena {

/// Writes entries that follow each other: their number, the position of the first, cells of each head.
void put_dense(CacheWriter& to, const EntrySegment& from, int64_t first, int64_t count);
/// Writes entries of each head by themselves: their number, positions, cells.
void put_ragged(CacheWriter& to, const EntrySegment& from);

/// Entries that were found in the stored bytes, and the segment that takes them.
struct FoundEntries {
  EntrySegment* to = nullptr;
  std::vector<EntrySegment::SavedHead> heads;
  std::optional<int64_t> position;  // absent where heads hold their own
};

[[nodiscard]] FoundEntries find_dense(CacheReader& from, EntrySegment& to);
[[nodiscard]] FoundEntries find_ragged(CacheReader& from, EntrySegment& to);

/// Copies what was found into cells, on all cores; each segment is there once.
void take_in(std::span<const FoundEntries> found);

}  // namespace kvarena
