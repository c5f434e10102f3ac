#pragma once
// Entries that requests leave for each other, and what a prompt adds to them.

#include <memory>
#include <optional>
#include <vector>

#include "harness/engine/reuse/chunk_store.h"
#include "harness/engine/reuse/prefix_tree.h"
#include "harness/engine/reuse/prompt_layout.h"
#include "harness/engine/reuse/token_run.h"
#include "harness/method/model_facts.h"
#include "harness/method/reuser.h"

namespace kvarena {

/// Entries that earlier requests to one model left for later ones. Thread-safe.
struct ReuseMemory {
  std::shared_ptr<ChunkStore> chunks = std::make_shared<MemoryChunkStore>();
  std::shared_ptr<PrefixTrees> prefixes = std::make_shared<PrefixTrees>();
  /// The facts of the model, which find artifacts; null: those of the project, and by path.
  std::shared_ptr<const ModelFacts> facts = nullptr;
};

/// Cuts the prompt into parts by what is known of it. The question is the last token where nothing else is known.
[[nodiscard]] ReusePrompt reuse_prompt_of(std::span<const int32_t> tokens, const PromptLayout& layout,
                                          const Reuser& reuser);

/// The tokens of a part.
[[nodiscard]] std::span<const int32_t> tokens_of(const ReusePrompt& prompt, const PromptPart& part);

/// Computes what the reuser would find if the prompt's parts had been seen before and the memory does not hold: every
/// chunk alone; for prefixes the prompt's beginning up to its first chunk, since later ones stand elsewhere in other
/// prompts. Its passes may be shared. What it found or made is not forgotten while it lives.
class Priming final : public PassMember {
 public:
  /// Opens the speculative model or the artifact, if the reuser has one of its own. Takes what must outlive it.
  Priming(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout, const Reuser& reuser,
          ReuseMemory& memory);

  [[nodiscard]] bool done() const { return !run_; }
  /// Feeds at most so many tokens in each pass from now on.
  void set_chunk(int64_t tokens) { chunk_ = tokens; }
  [[nodiscard]] SequencePass next_pass() override;
  void consume(std::span<const float> logits) override;
  /// Throws UserError with the reason.
  void failed(const std::string& reason) override { run_->failed(reason); }
  /// Bytes of the entries on their way.
  [[nodiscard]] int64_t bytes() const { return run_ ? run_->bytes() : 0; }

 private:
  void hold_artifact();
  /// Goes on to the next part that the memory lacks.
  void advance();
  [[nodiscard]] bool held(std::span<const int32_t> part);
  void keep(std::span<const int32_t> part, KvCache cache);

  Transformer* model_;
  const Reuser* reuser_;
  ReuseMemory* memory_;
  std::vector<std::span<const int32_t>> parts_;
  size_t next_ = 0;              // of parts_
  std::optional<TokenRun> run_;  // of the part before
  int64_t chunk_ = 512;          // tokens
  std::vector<std::shared_ptr<const void>> holds_;
};

/// A Priming from beginning to end.
void prime(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout, const Reuser& reuser,
           ReuseMemory& memory);

}  // namespace kvarena
