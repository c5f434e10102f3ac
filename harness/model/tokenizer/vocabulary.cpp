#include "harness/model/tokenizer/vocabulary.h"

#include <bit>
#include <utility>

namespace kvarena {

void Vocabulary::reserve(size_t size, size_t total_bytes) {
  spans_.reserve(size);
  arena_.reserve(total_bytes);
  if (slots_.size() < 2 * size) {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(std::bit_ceil(2 * size + 16)));
    mask_ = slots_.size() - 1;
    searchable_ = 0;
    for (const Slot& slot : old) {
      if (slot.id >= 0) insert(slot.id);
    }
  }
}

void Vocabulary::set(int32_t id, std::string_view bytes, bool searchable) {
  if (id >= size()) spans_.resize(static_cast<size_t>(id) + 1);
  spans_[static_cast<size_t>(id)] = {static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(bytes.size())};
  arena_ += bytes;
  if (!searchable) return;
  if (2 * (searchable_ + 1) > slots_.size()) reserve(2 * (searchable_ + 8), arena_.capacity());
  insert(id);
}

void Vocabulary::insert(int32_t id) {
  const std::string_view text = bytes(id);
  const uint64_t hash = hash_bytes(text);
  size_t at = hash & mask_;
  while (slots_[at].id >= 0 && bytes(slots_[at].id) != text) at = (at + 1) & mask_;
  if (slots_[at].id < 0) ++searchable_;
  slots_[at] = {static_cast<uint32_t>(hash >> 32), id};
}

}  // namespace kvarena
