#pragma once
// Speculative decoding with a second checkpoint of another vocabulary: the two meet in text. Timor et al. 2025,
// arXiv:2502.05202, section 3.1 (exact match of strings).

#include <string>

#include "harness/engine/draft/draft_source.h"
#include "harness/model/shared_model.h"
#include "harness/model/tokenizer/tokenizer.h"

namespace kvarena {

/// Whether ids of the two mean the same text: as far as both vocabularies reach, their tokens are spelled alike.
[[nodiscard]] bool same_vocabulary(const Tokenizer& one, const Tokenizer& other);

/// The drafter reads the bytes of the sequence in tokens of its own and goes on in them; the bytes that it adds are
/// read in the target's tokens and proposed. Whatever of its tokens spell what was accepted stays in its cache. Its
/// draws say nothing of the target's tokens: it always takes the likeliest, and proposals are point masses.
class TextDraft final : public DraftSource {
 public:
  /// `tokenizer` is the target's and must outlive the source.
  TextDraft(std::shared_ptr<SharedModel> drafter, const Tokenizer& tokenizer, const Prefill& prompt);

  void begin(const DraftRound& round) override;
  void commit(const Verified& /*verified*/) override {}  // the next round's history says it
  [[nodiscard]] int64_t resident_bytes() const override { return cache_.bytes(); }
  [[nodiscard]] int64_t peak_bytes() const override { return cache_.ledger->peak(Tier::device); }

 private:
  void read(std::span<const int32_t> history);
  /// Brings the drafter's tokens to spell the target's text, to its last whole character.
  void follow_text();
  /// Feeds what the cache lacks, the last token at least, and returns the likeliest next one.
  int32_t next_token();
  /// The target's tokens for what the drafter has added.
  [[nodiscard]] std::vector<int32_t> proposed() const;

  std::shared_ptr<SharedModel> shared_;
  Transformer* model_;    // shared_'s
  const Tokenizer* own_;  // shared_'s
  const Tokenizer* target_;
  KvCache cache_;
  std::string text_;          // of the target's tokens so far
  size_t whole_ = 0;          // bytes of it that are whole characters
  size_t read_ = 0;           // the target's tokens in it
  std::vector<int32_t> ids_;  // the drafter's tokens; the cache holds the first of them
  std::vector<size_t> ends_;  // [ids_], where each ends in spelled_
  std::string spelled_;       // what they spell
};

}  // namespace kvarena
