#pragma once
// Text to token ids and back.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena {

class GgufFile;

struct EncodeOptions {
  /// Add what the tokenizer's post-processor adds to a whole prompt (a leading <s>, [CLS] ... [SEP]). A prompt made by
  /// a chat template carries these in its text already.
  bool add_special = true;
  /// Recognise special tokens ("<|im_end|>") written in the text. Off: they are ordinary characters.
  bool parse_special = true;
};

struct DecodeOptions {
  bool skip_special = true;
};

/// Ids of tokens with a role; absent where the tokenizer's files name none.
struct SpecialIds {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::optional<int32_t> unknown;
  std::optional<int32_t> padding;
};

/// Immutable after loading: any number of threads may use one at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The ids of `text`. Bytes that are not UTF-8 are read as U+FFFD. Texts of 512 MiB and more are refused (UserError).
  [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text, EncodeOptions options) const = 0;
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const { return encode(text, EncodeOptions{}); }

  /// The text of `ids`; bytes that do not make UTF-8 become U+FFFD. Throws InternalError for an id outside the
  /// vocabulary.
  [[nodiscard]] virtual std::string decode(std::span<const int32_t> ids, DecodeOptions options) const = 0;
  [[nodiscard]] std::string decode(std::span<const int32_t> ids) const { return decode(ids, DecodeOptions{}); }

  /// One more than the largest id. A model's vocab_size may be larger (padded rows).
  [[nodiscard]] virtual int64_t vocab_size() const = 0;

  /// The token as the vocabulary writes it ("Ġthe", "<0x0A>", "<|im_end|>"); empty for an id without token.
  [[nodiscard]] virtual std::string token_text(int32_t id) const = 0;

  /// The bytes that a token adds to a text, which need not be whole characters. `first` says that nothing stands
  /// before it: some tokenizers drop the first token's leading space.
  [[nodiscard]] virtual std::string token_bytes(int32_t id, bool first) const = 0;

  /// The id of the token that the vocabulary writes as `token_text`.
  [[nodiscard]] virtual std::optional<int32_t> find(std::string_view token_text) const = 0;

  [[nodiscard]] virtual bool is_special(int32_t id) const = 0;
  [[nodiscard]] virtual const SpecialIds& special_ids() const = 0;
};

/// Turns a stream of ids into a stream of whole characters: bytes of a character that is not complete yet are held
/// back. The parts together equal decode() of the ids, except that a SentencePiece tokenizer's malformed byte tokens
/// may give another number of U+FFFD.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, DecodeOptions options = {})
      : tokenizer_(tokenizer), options_(options) {}

  /// The text that has become certain with this token; may be empty.
  [[nodiscard]] std::string push(int32_t id);

  /// The bytes held back, as U+FFFD. The next push begins a new text.
  [[nodiscard]] std::string finish();

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  std::string pending_;  // at most 3 bytes: the beginning of a character
  bool first_ = true;
};

/// Reads a tokenizer.json of Hugging Face `tokenizers` (".gz" at the end: compressed). Ids of bos, eos and the like
/// come from tokenizer_config.json beside it when there is one. Throws UserError naming the file and the component that
/// is unknown or wrong.
[[nodiscard]] std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& tokenizer_json);

/// Reads the tokenizer.ggml.* metadata of a GGUF file.
[[nodiscard]] std::unique_ptr<Tokenizer> load_gguf_tokenizer(const GgufFile& file);

}  // namespace kvarena
