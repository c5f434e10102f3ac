#pragma once
// Byte-pair encoding: a piece of text starts as its smallest symbols; the pair of neighbours that was learnt first is
// merged, leftmost first, until no neighbours can be merged (Sennrich et al. 2016, as in Hugging Face `tokenizers`).

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "harness/model/tokenizer/token_model.h"
#include "harness/model/tokenizer/vocabulary.h"

namespace kvarena {

struct BpeOptions {
  /// Symbols are bytes and the vocabulary holds bytes. Otherwise symbols are characters.
  bool byte_level = true;
  /// A character outside the vocabulary becomes its bytes' tokens "<0x41>" where all of them exist.
  bool byte_fallback = false;
  /// A piece that is a token is that token, whether or not merges lead to it.
  bool ignore_merges = false;
  /// Neighbouring unknown characters become one unknown token.
  bool fuse_unknown = false;
  int32_t unknown = -1;  // -1: what is unknown is dropped
};

class Bpe final : public TokenModel {
 public:
  /// A merge of two tokens; its rank is its place in the list.
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t result;
  };
  Bpe(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<Merge>& merges, BpeOptions options);

  void encode(std::string_view piece, std::vector<int32_t>& out) const override;

  /// True when no token continues after `boundary` follows another character: no merge can then join what stands
  /// before such a character with what it begins, and a text may be cut there without changing the result.
  [[nodiscard]] bool may_cut_before(std::string_view boundary) const;

 private:
  struct PairSlot {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t result = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};
  enum class Direct : uint8_t { unknown, yes, no };

  [[nodiscard]] const PairSlot& find_pair(int32_t left, int32_t right) const;
  [[nodiscard]] bool merges_to_itself(int32_t id, std::string_view piece) const;
  void merge(std::string_view piece, std::vector<int32_t>& out) const;
  void split_into_symbols(std::string_view piece, std::vector<int32_t>& symbols) const;
  void append_character(std::string_view character, std::vector<int32_t>& symbols) const;
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  BpeOptions options_;
  std::vector<PairSlot> pairs_;  // open addressing, a power of two
  size_t pair_mask_ = 0;
  int32_t byte_symbols_[256];  // token of the byte itself (byte_level) or of "<0x..>"; -1 where missing
  /// Whether merging a token's bytes leads back to the token: computed at the first query, by any thread.
  mutable std::unique_ptr<std::atomic<Direct>[]> direct_;  // [vocabulary size]
};

}  // namespace kvarena
