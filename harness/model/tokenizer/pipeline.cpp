#include "harness/model/tokenizer/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "harness/core/error.h"
#include "harness/model/tokenizer/byte_alphabet.h"
#include "harness/model/tokenizer/utf8.h"

namespace kvarena {
namespace {

std::vector<AddedToken> with_normalized(const std::vector<AddedToken>& all, bool normalized) {
  std::vector<AddedToken> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [&](const AddedToken& token) { return token.normalized == normalized; });
  return some;
}

/// Tokens looked for in normalised text are compared in normalised form.
std::vector<AddedToken> normalized_tokens(const TokenizerParts& parts) {
  std::vector<AddedToken> tokens = with_normalized(parts.added, true);
  if (parts.normalizer) {
    for (AddedToken& token : tokens) parts.normalizer->apply(token.content);
  }
  return tokens;
}

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts)
      : parts_(std::move(parts)),
        before_normalizer_(with_normalized(parts_.added, false)),
        after_normalizer_(normalized_tokens(parts_)),
        size_(parts_.vocabulary->size()) {
    for (size_t i = 0; i < parts_.added.size(); ++i) {
      added_by_id_[parts_.added[i].id] = i;
      size_ = std::max(size_, parts_.added[i].id + 1);
    }
    known_ = size_;
    for (const auto* around : {&parts_.prefix, &parts_.suffix}) {
      for (const int32_t id : *around) known_ = std::max(known_, id + 1);
    }
  }

  std::vector<int32_t> encode(std::string_view text, EncodeOptions options) const override {
    if (text.size() >= std::numeric_limits<uint32_t>::max() / 8) {
      fail({.place = "tokenizer",
            .found = fmt::format("a text of {} bytes", text.size()),
            .expected = "less than 512 MiB"});
    }
    std::string repaired;
    if (!is_valid_utf8(text)) {
      repaired = replace_malformed_utf8(text);
      text = repaired;
    }
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 3 + 8);
    if (options.add_special) ids = parts_.prefix;
    const char* start = text.data();
    for (const TextPart& part : before_normalizer_.split(text, options.parse_special)) {
      if (part.token >= 0) {
        ids.push_back(part.token);
      } else {
        encode_text(part.text, part.text.data() == start, options, ids);
      }
    }
    if (options.add_special) ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
    return ids;
  }

  std::string decode(std::span<const int32_t> ids, DecodeOptions options) const override {
    std::string out;
    std::string run;  // bytes of neighbouring byte-fallback tokens
    const auto flush = [&] {
      // Hugging Face `tokenizers` takes such a run as a whole: all of it is UTF-8, or each byte is malformed.
      if (is_valid_utf8(run)) {
        out += run;
      } else {
        for (size_t i = 0; i < run.size(); ++i) out += kReplacementCharacter;
      }
      run.clear();
    };
    bool first = true;
    for (const int32_t id : ids) {
      if (options.skip_special && is_special(id)) continue;
      const std::string bytes = token_bytes(id, first);
      first = false;
      if (is_byte_token(id)) {
        run += bytes;
        continue;
      }
      flush();
      out += bytes;
    }
    flush();
    return is_valid_utf8(out) ? out : replace_malformed_utf8(out);
  }

  int64_t vocab_size() const override { return size_; }

  std::string token_text(int32_t id) const override {
    if (const AddedToken* added = find_added(id)) return added->content;
    const std::string_view bytes = vocabulary_bytes(id);
    const bool mapped = parts_.decoder.kind == Decoder::Kind::byte_level && parts_.vocabulary->find(bytes) == id;
    return mapped ? text_of_bytes(bytes) : std::string(bytes);
  }

  std::string token_bytes(int32_t id, bool first) const override {
    const AddedToken* added = find_added(id);
    return parts_.decoder.bytes_of(added != nullptr ? std::string_view(added->content) : vocabulary_bytes(id), first);
  }

  std::optional<int32_t> find(std::string_view token_text) const override {
    for (const AddedToken& token : parts_.added) {
      if (token.content == token_text) return token.id;
    }
    std::string bytes(token_text);
    if (parts_.decoder.kind == Decoder::Kind::byte_level) {
      bytes.clear();
      if (!is_valid_utf8(token_text) || !append_bytes_of(token_text, bytes)) return std::nullopt;
    }
    const int32_t id = parts_.vocabulary->find(bytes);
    return id < 0 ? std::nullopt : std::optional(id);
  }

  bool is_special(int32_t id) const override {
    const AddedToken* added = find_added(id);
    return added != nullptr && added->special;
  }

  const SpecialIds& special_ids() const override { return parts_.special; }

 private:
  void encode_text(std::string_view text, bool at_start, EncodeOptions options, std::vector<int32_t>& ids) const {
    std::string normalized;
    if (parts_.normalizer && !parts_.normalizer->keeps(text)) {
      normalized = text;
      parts_.normalizer->apply(normalized);
      text = normalized;
    }
    if (after_normalizer_.empty()) return encode_pieces(text, at_start, ids);
    const char* start = text.data();
    for (const TextPart& part : after_normalizer_.split(text, options.parse_special)) {
      if (part.token >= 0) {
        ids.push_back(part.token);
      } else {
        encode_pieces(part.text, at_start && part.text.data() == start, ids);
      }
    }
  }

  void encode_pieces(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
    if (text.empty()) return;
    Pieces pieces{.text = text, .at_start = at_start};
    pieces.list.push_back({0, static_cast<uint32_t>(text.size())});
    for (const PreTokenizerPtr& step : parts_.pre_tokenizers) step->apply(pieces);
    for (const Piece piece : pieces.list) parts_.model->encode(pieces[piece], ids);
  }

  [[nodiscard]] const AddedToken* find_added(int32_t id) const {
    KVARENA_ASSERT(id >= 0 && id < known_, fmt::format("token id {} of a vocabulary of {}", id, size_));
    const auto it = added_by_id_.find(id);
    return it == added_by_id_.end() ? nullptr : &parts_.added[it->second];
  }

  [[nodiscard]] std::string_view vocabulary_bytes(int32_t id) const {
    return id < parts_.vocabulary->size() ? parts_.vocabulary->bytes(id) : std::string_view();
  }

  [[nodiscard]] bool is_byte_token(int32_t id) const {
    return parts_.decoder.byte_fallback && find_added(id) == nullptr && byte_of_token(vocabulary_bytes(id)) >= 0;
  }

  TokenizerParts parts_;
  AddedTokenMatcher before_normalizer_;
  AddedTokenMatcher after_normalizer_;
  std::unordered_map<int32_t, size_t> added_by_id_;  // place in parts_.added
  int32_t size_;
  int32_t known_;  // more where a template puts ids around a text that no token has: they say nothing
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts) {
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace kvarena
