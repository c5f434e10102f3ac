#pragma once
// Reuse: a prompt's cache is put together from entries that were computed for its parts alone, and some tokens are
// computed anew.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/core/text_range.h"
#include "harness/method/part_method.h"
#include "harness/method/registry.h"

namespace kvarena {

/// Where the entries of tokens that are not computed come from.
enum class ReuseSource {
  nothing,  // everything is computed
  prefix,   // the longest beginning of the prompt that an earlier prompt shares, whole blocks of tokens
  chunks,   // parts of the prompt computed alone, whose keys are rotated to their positions
  artifact  // entries that stand for all of the context; where they are no fewer than its tokens, nothing
};

/// Tokens begin .. end-1 of the prompt.
struct PromptPart {
  int64_t begin = 0;
  int64_t end = 0;
};

/// A model that reads the whole prompt before the target does.
struct SpeculativeModel {
  std::string path;   // its folder or .gguf file; empty: the target itself
  double layers = 1;  // share of its layers that are run, in (0, 1]
};

/// The prompt as a speculative model read it.
struct Speculation {
  int64_t layers = 0;             // that were run
  int64_t tokens = 0;             // N, of its tokenizer
  std::vector<float> norms;       // [layers, N], |h|_2 of the residual stream after each layer
  std::vector<TextRange> ranges;  // [N], in the prompt's text
  std::vector<TextRange> target;  // [n], of the target's tokens in the same text
};

/// Entries of a run of tokens: of each layer keys, and values, rows [tokens, kv_heads, head_dim].
struct PartRows {
  std::vector<std::vector<float>> keys;
  std::vector<std::vector<float>> values;
};

/// Entries of a prompt's parts, by their numbers in ReusePrompt::parts. Keys are turned as if the part began at
/// `position`, which must not be before its place.
class PartReader {
 public:
  virtual ~PartReader() = default;
  /// As the part was computed alone; of any place.
  [[nodiscard]] virtual PartRows alone(size_t part, int64_t position) const = 0;
  /// As the prompt holds them now.
  [[nodiscard]] virtual PartRows in_prompt(size_t part, int64_t position) const = 0;
};

/// A request as a reuser sees it, before the target has computed anything.
struct ReusePrompt {
  std::span<const int32_t> tokens;  // [n]
  /// From 0 to the question without a gap. The first part's entries are those of a full prefill.
  std::vector<PromptPart> parts;
  int64_t question = 0;                      // tokens from here on are computed in any case
  const Speculation* speculation = nullptr;  // null unless asked for
  const PartReader* entries = nullptr;       // null unless the reuser adjusts parts
};

/// How far a layer's fresh entries are from the reused ones.
struct EntryDeviation {
  int64_t layer = 0;
  int64_t context = 0;                 // tokens in front of the question
  std::span<const int32_t> positions;  // context tokens that this layer computed, ascending
  std::span<const float> keys;         // [positions], squared distance over heads and channels
  std::span<const float> values;       // likewise
};

/// Chooses the tokens of a prompt that are computed anew. Its parameters are those beside the length of chunks, which
/// the framework declares.
class Reuser : public MethodPart {
 public:
  [[nodiscard]] virtual ReuseSource source() const { return ReuseSource::chunks; }
  /// Tokens of a block of the prefix; of ReuseSource::prefix.
  [[nodiscard]] virtual int64_t block() const { return 1; }

  /// Context tokens that are computed from the first layer on, ascending. Of ReuseSource::chunks.
  [[nodiscard]] virtual std::vector<int32_t> select(const ReusePrompt& /*prompt*/) const { return {}; }
  /// The model that select() wants to have read the prompt.
  [[nodiscard]] virtual std::optional<SpeculativeModel> speculative() const { return {}; }

  /// Whether fewer tokens go on from this layer: then narrow() is asked for them, ascending.
  [[nodiscard]] virtual bool narrows(int64_t /*layer*/) const { return false; }
  [[nodiscard]] virtual std::vector<int32_t> narrow(const EntryDeviation& seen) const {
    return {seen.positions.begin(), seen.positions.end()};
  }

  /// The artifact, and the entries in it for layers of these shapes. Of ReuseSource::artifact.
  [[nodiscard]] virtual FittedRequest artifact() const { return {}; }
  [[nodiscard]] virtual PartRows entries_in(const FittedWeights& /*weights*/,
                                            std::span<const LayerShape> /*layers*/) const {
    return {};
  }

  /// Whether parts of which nothing is computed get other entries than they were stored with. select() and adjusted()
  /// then read those that there are. Of ReuseSource::chunks, of reusers that do not narrow.
  [[nodiscard]] virtual bool adjusts() const { return false; }
  /// The entries at its place of a part but the first, of which nothing is computed. All parts before it are as they
  /// stay; `computed` are those of these, but for the first, of which something was computed.
  [[nodiscard]] virtual PartRows adjusted(const ReusePrompt& prompt, size_t part,
                                          std::span<const size_t> /*computed*/) const {
    return prompt.entries->in_prompt(part, prompt.parts[part].begin);
  }

  /// Whether whole cells of entries behind a chunk's last computed token stay where the memory holds them, shared with
  /// other requests, once the prompt is there. Of ReuseSource::chunks.
  [[nodiscard]] virtual bool shares_cells() const { return false; }

  /// Tokens of a chunk.
  [[nodiscard]] int64_t chunk() const { return chunk_; }

 private:
  friend class ReuseMethod;  // declares chunk_
  int64_t chunk_ = 512;
};

/// The parts of a prompt: its prefix (system prompt, instruction) of `prefix` tokens, if it has one, and the rest up to
/// `question` in chunks of `chunk` tokens, the last one shorter.
[[nodiscard]] std::vector<PromptPart> cut_parts(int64_t prefix, int64_t question, int64_t chunk);

/// Acts before the first token alone: later entries are full KV's.
class ReuseMethod final : public PartMethod<Reuser> {
 public:
  using PartMethod::PartMethod;

  void parameters(ParameterVisitor& p) override;
  [[nodiscard]] const Reuser* reuser() const override { return part_.get(); }
  [[nodiscard]] HookAccess reach() const override { return HookAccess::nothing; }
};

#define KVARENA_REUSER(type, ...)                                                                                      \
  KVARENA_REGISTER(type, ::kvarena::Family::reuse, std::make_unique<::kvarena::ReuseMethod>(std::make_unique<type>()), \
                   __VA_ARGS__)

}  // namespace kvarena
