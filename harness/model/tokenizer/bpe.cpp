#include "harness/model/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <queue>

#include "harness/model/tokenizer/utf8.h"

namespace kvarena {
namespace {

/// Pieces up to this many symbols are merged by scanning for the best pair; longer ones with a queue. Words are short:
/// scanning a few neighbours in one cache line beats a heap, which only pays when quadratic time would show.
constexpr size_t kShortPiece = 48;

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t hash_pair(uint64_t pair) {
  pair *= 0x9e3779b97f4a7c15u;
  return pair ^ pair >> 32;
}

}  // namespace

Bpe::Bpe(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<Merge>& merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      direct_(std::make_unique<std::atomic<Direct>[]>(static_cast<size_t>(vocabulary_->size()))) {
  pairs_.resize(std::bit_ceil(2 * merges.size() + 16));
  pair_mask_ = pairs_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = pair_key(merges[rank].left, merges[rank].right);
    size_t at = hash_pair(pair) & pair_mask_;
    while (pairs_[at].pair != kNoPair && pairs_[at].pair != pair) at = (at + 1) & pair_mask_;
    pairs_[at] = {pair, static_cast<uint32_t>(rank), merges[rank].result};  // the last of a pair listed twice counts
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char raw = static_cast<char>(byte);
    byte_symbols_[byte] = options_.byte_level      ? vocabulary_->find({&raw, 1})
                          : options_.byte_fallback ? vocabulary_->find(fmt::format("<0x{:02X}>", byte))
                                                   : -1;
  }
}

const Bpe::PairSlot& Bpe::find_pair(int32_t left, int32_t right) const {
  static constexpr PairSlot kNone{kNoPair, kNoRank, -1};
  const uint64_t pair = pair_key(left, right);
  for (size_t at = hash_pair(pair) & pair_mask_;; at = (at + 1) & pair_mask_) {
    if (pairs_[at].pair == pair) return pairs_[at];
    if (pairs_[at].pair == kNoPair) return kNone;
  }
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& out) const {
  const int32_t id = vocabulary_->find(piece);
  if (id >= 0 && (options_.ignore_merges || merges_to_itself(id, piece))) {
    out.push_back(id);
  } else {
    merge(piece, out);
  }
}

bool Bpe::merges_to_itself(int32_t id, std::string_view piece) const {
  std::atomic<Direct>& direct = direct_[static_cast<size_t>(id)];
  const Direct known = direct.load(std::memory_order_relaxed);
  if (known != Direct::unknown) return known == Direct::yes;
  std::vector<int32_t> ids;
  merge(piece, ids);
  const bool same = ids.size() == 1 && ids[0] == id;
  direct.store(same ? Direct::yes : Direct::no, std::memory_order_relaxed);
  return same;
}

void Bpe::merge(std::string_view piece, std::vector<int32_t>& out) const {
  thread_local std::vector<int32_t> symbols;  // scratch: keeps its room from piece to piece
  symbols.clear();
  split_into_symbols(piece, symbols);
  if (symbols.size() <= kShortPiece) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
}

void Bpe::split_into_symbols(std::string_view piece, std::vector<int32_t>& symbols) const {
  if (options_.byte_level) {
    for (const char byte : piece) {
      const int32_t symbol = byte_symbols_[static_cast<uint8_t>(byte)];
      if (symbol >= 0) {
        symbols.push_back(symbol);
      } else {
        append_character({&byte, 1}, symbols);
      }
    }
    return;
  }
  for (size_t at = 0; at < piece.size();) {
    const uint32_t length = code_point_at(piece, at).length;
    append_character(piece.substr(at, length), symbols);
    at += length;
  }
}

void Bpe::append_character(std::string_view character, std::vector<int32_t>& symbols) const {
  if (const int32_t id = vocabulary_->find(character); id >= 0) {
    symbols.push_back(id);
    return;
  }
  if (options_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char byte) {
        return byte_symbols_[static_cast<uint8_t>(byte)] >= 0;
      })) {
    for (const char byte : character) symbols.push_back(byte_symbols_[static_cast<uint8_t>(byte)]);
    return;
  }
  if (options_.unknown < 0) return;
  if (options_.fuse_unknown && !symbols.empty() && symbols.back() == options_.unknown) return;
  symbols.push_back(options_.unknown);
}

void Bpe::merge_short(std::vector<int32_t>& symbols) const {
  struct Next {
    uint32_t rank;
    int32_t result;
  };
  size_t count = symbols.size();
  if (count < 2) return;
  Next next[kShortPiece];  // next[i]: what merging symbols i and i + 1 gives
  const auto look_up = [&](size_t i) {
    const PairSlot& slot = find_pair(symbols[i], symbols[i + 1]);
    next[i] = {slot.rank, slot.result};
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (next[i].rank < next[best].rank) best = i;
    }
    if (next[best].rank == kNoRank) break;
    symbols[best] = next[best].result;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      next[i] = next[i + 1];
    }
    --count;
    if (best + 1 < count) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  symbols.resize(count);
}

void Bpe::merge_long(std::vector<int32_t>& symbols) const {
  struct Candidate {
    uint32_t rank;
    uint32_t at;  // index of the left symbol
    int32_t left, right, result;
    bool operator<(const Candidate& other) const {  // the queue gives the largest: smallest rank, then leftmost
      return std::pair(other.rank, other.at) < std::pair(rank, at);
    }
  };
  constexpr int32_t kGone = -1;
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(count);
  std::vector<uint32_t> previous(count);
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // the first symbol's is never used
  }
  std::priority_queue<Candidate> queue;
  const auto offer = [&](uint32_t at) {
    if (next[at] == count) return;
    const int32_t left = symbols[at];
    const int32_t right = symbols[next[at]];
    const PairSlot& slot = find_pair(left, right);
    if (slot.rank != kNoRank) queue.push({slot.rank, at, left, right, slot.result});
  };
  for (uint32_t i = 0; i + 1 < count; ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const uint32_t at = best.at;
    // A candidate is stale when one of its symbols has been merged since.
    if (symbols[at] != best.left || next[at] == count || symbols[next[at]] != best.right) continue;
    symbols[next[at]] = kGone;
    next[at] = next[next[at]];
    if (next[at] != count) previous[next[at]] = at;
    symbols[at] = best.result;
    offer(at);
    if (at > 0) offer(previous[at]);
  }
  symbols.erase(std::remove(symbols.begin(), symbols.end(), kGone), symbols.end());
}

bool Bpe::may_cut_before(std::string_view boundary) const {
  if (vocabulary_->find(boundary) < 0) return false;
  for (int32_t id = 0; id < vocabulary_->size(); ++id) {
    std::string_view token = vocabulary_->bytes(id);
    while (token.starts_with(boundary)) token.remove_prefix(boundary.size());
    if (token.find(boundary) != std::string_view::npos) return false;
  }
  return true;
}

}  // namespace kvarena
