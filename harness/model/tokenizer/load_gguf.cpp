// Tokenizers from GGUF metadata. What Hugging Face files spell out as components, GGUF names by two words: the model
// (tokenizer.ggml.model) and the way of cutting (tokenizer.ggml.pre).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "harness/model/gguf.h"
#include "harness/model/tokenizer/bpe_files.h"
#include "harness/model/tokenizer/pipeline.h"
#include "harness/model/tokenizer/pre_tokenizer.h"
#include "harness/model/tokenizer/scanners.h"

namespace kvarena {
namespace {

/// The values of tokenizer.ggml.token_type.
enum class GgufTokenType : int64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

std::string key_place(const GgufFile& file, const char* key) {
  return fmt::format("{}: metadata {}", file.path().string(), key);
}

struct GgufTokens {
  std::vector<std::string_view> texts;
  std::vector<int64_t> types;  // all normal where the file does not say
};

GgufTokens on_tokens(const GgufFile& file) {
  GgufTokens tokens{.texts = file.find_strings("tokenizer.ggml.tokens"),
                    .types = file.find_ints("tokenizer.ggml.token_type")};
  if (tokens.texts.empty() || tokens.texts.size() > INT32_MAX) {
    fail({.place = key_place(file, "tokenizer.ggml.tokens"),
          .found = fmt::format("{} tokens", tokens.texts.size()),
          .expected = "a vocabulary"});
  }
  if (tokens.types.empty()) tokens.types.assign(tokens.texts.size(), static_cast<int64_t>(GgufTokenType::normal));
  if (tokens.types.size() != tokens.texts.size()) {
    fail({.place = key_place(file, "tokenizer.ggml.token_type"),
          .found = fmt::format("{} types", tokens.types.size()),
          .expected = fmt::format("one for each of the {} tokens", tokens.texts.size())});
  }
  return tokens;
}

std::vector<AddedToken> added_tokens(const GgufTokens& tokens) {
  std::vector<AddedToken> added;
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    const auto type = static_cast<GgufTokenType>(tokens.types[i]);
    const bool special = type == GgufTokenType::control || type == GgufTokenType::unknown;
    if (special || type == GgufTokenType::user_defined) {
      added.push_back({.id = static_cast<int32_t>(i), .content = std::string(tokens.texts[i]), .special = special});
    }
  }
  return added;
}

SpecialIds read_special_ids(const GgufFile& file, size_t vocab_size) {
  const auto id_of = [&](const char* key) -> std::optional<int32_t> {
    const std::optional<int64_t> id = file.find_int(key);
    if (!id) return std::nullopt;
    if (*id < 0 || *id >= static_cast<int64_t>(vocab_size)) {
      fail({.place = key_place(file, key),
            .found = fmt::to_string(*id),
            .expected = fmt::format("an id below {}", vocab_size)});
    }
    return static_cast<int32_t>(*id);
  };
  return {.bos = id_of("tokenizer.ggml.bos_token_id"),
          .eos = id_of("tokenizer.ggml.eos_token_id"),
          .unknown = id_of("tokenizer.ggml.unknown_token_id"),
          .padding = id_of("tokenizer.ggml.padding_token_id")};
}

void add_split(TokenizerParts& parts, std::string_view pattern) {
  parts.pre_tokenizers.push_back(make_scanner(pattern));
}

/// The ways of cutting that the supported models use. Returns whether whole pieces skip the merges and whether a text
/// begins with bos where the file does not say.
struct PreDefaults {
  bool ignore_merges = false;
  bool add_bos = false;
};

PreDefaults add_pre_tokenizers(const GgufFile& file, TokenizerParts& parts) {
  const std::string pre = file.find_string("tokenizer.ggml.pre").value_or("gpt-2");
  const auto add_regex = [&](std::string_view pattern) {
    parts.pre_tokenizers.push_back(
        make_regex_split(std::string(pattern), SplitBehavior::isolated, false, key_place(file, "tokenizer.ggml.pre")));
  };
  if (pre == "gpt-2" || pre == "gpt2" || pre == "olmo") {
    add_split(parts, kGpt2Pattern);
  } else if (pre == "smollm" || pre == "refact") {
    parts.pre_tokenizers.push_back(make_digits(true));
    add_split(parts, kGpt2Pattern);
  } else if (pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3") {
    add_split(parts, kLlama3Pattern);
    return {.ignore_merges = true, .add_bos = true};
  } else if (pre == "qwen2" || pre == "deepseek-r1-qwen") {
    add_split(parts, kQwenPattern);
    parts.normalizer = make_unicode_normalizer(unicode::Form::nfc);
  } else if (pre == "deepseek-v3") {
    add_split(parts, kDeepSeekDigitsPattern);
    add_split(parts, kDeepSeekHanPattern);
    add_split(parts, kDeepSeekWordsPattern);
  } else if (pre == "dbrx" || pre == "glm4" || pre == "chatglm-bpe") {
    add_split(parts, kLlama3Pattern);
  } else if (pre == "gpt-4o" || pre == "llama4") {
    add_regex(kO200kPattern);
  } else if (pre == "tekken") {
    add_regex(kTekkenPattern);
    return {.ignore_merges = true, .add_bos = true};
  } else {
    fail({.place = key_place(file, "tokenizer.ggml.pre"),
          .found = fmt::format("\"{}\"", pre),
          .expected =
              "gpt-2, olmo, smollm, refact, llama-bpe, dbrx, glm4, qwen2, deepseek-r1-qwen, deepseek-v3, gpt-4o, "
              "llama4 or tekken",
          .nearest = nearest_name(pre, {"gpt-2", "olmo", "smollm", "refact", "llama-bpe", "dbrx", "glm4", "qwen2",
                                        "deepseek-v3", "gpt-4o", "llama4", "tekken"})});
  }
  return {};
}

void make_byte_level(const GgufFile& file, const GgufTokens& tokens, TokenizerParts& parts, bool& add_bos) {
  const PreDefaults defaults = add_pre_tokenizers(file, parts);
  add_bos = defaults.add_bos;
  auto vocabulary = std::make_shared<Vocabulary>();
  vocabulary->reserve(tokens.texts.size(), tokens.texts.size() * 8);
  const std::string place = key_place(file, "tokenizer.ggml.tokens");
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    add_byte_level_token(*vocabulary, static_cast<int32_t>(i), tokens.texts[i], place);
  }
  MergeParser merges(*vocabulary, true, key_place(file, "tokenizer.ggml.merges"));
  for (const std::string_view merge : file.find_strings("tokenizer.ggml.merges")) merges.add(merge);
  parts.vocabulary = vocabulary;
  parts.model = std::make_unique<Bpe>(vocabulary, merges.take(),
                                      BpeOptions{.byte_level = true, .ignore_merges = defaults.ignore_merges});
  parts.decoder.kind = Decoder::Kind::byte_level;
}

void make_sentencepiece(const GgufFile& file, const GgufTokens& tokens, TokenizerParts& parts) {
  auto vocabulary = std::make_shared<Vocabulary>();
  vocabulary->reserve(tokens.texts.size(), tokens.texts.size() * 8);
  const std::string place = key_place(file, "tokenizer.ggml.tokens");
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    add_text_token(*vocabulary, static_cast<int32_t>(i), tokens.texts[i], place);
  }
  const std::vector<float> scores = file.find_floats("tokenizer.ggml.scores");
  const bool ordered = std::none_of(scores.begin(), scores.end(), [](float score) { return std::isnan(score); });
  if (scores.size() != tokens.texts.size() || !ordered) {
    fail({.place = key_place(file, "tokenizer.ggml.scores"),
          .found = ordered ? fmt::format("{} scores", scores.size()) : "NaN",
          .expected = fmt::format("one for each of the {} tokens", tokens.texts.size())});
  }
  std::vector<NormalizerPtr> steps;
  if (file.find_bool("tokenizer.ggml.add_space_prefix").value_or(true)) steps.push_back(make_prepend("\u2581"));
  const bool prefix = !steps.empty();
  steps.push_back(make_replace(" ", "\u2581"));
  parts.normalizer = make_sequence(std::move(steps));
  parts.vocabulary = vocabulary;
  auto model = std::make_unique<Bpe>(vocabulary, merges_from_scores(*vocabulary, scores),
                                     BpeOptions{.byte_level = false,
                                                .byte_fallback = true,
                                                .fuse_unknown = true,
                                                .unknown = parts.special.unknown.value_or(0)});
  if (model->may_cut_before("\u2581")) {
    parts.pre_tokenizers.push_back(make_cut_before_runs("\u2581"));
  }
  parts.model = std::move(model);
  parts.decoder = {.kind = Decoder::Kind::sentencepiece,
                   .replacements = {{"\u2581", " "}},
                   .byte_fallback = true,
                   .strip_first_space = prefix};
}

}  // namespace

std::unique_ptr<Tokenizer> load_gguf_tokenizer(const GgufFile& file) {
  const GgufTokens tokens = on_tokens(file);
  TokenizerParts parts;
  parts.added = added_tokens(tokens);
  parts.special = read_special_ids(file, tokens.texts.size());
  const std::string model = file.get_string("tokenizer.ggml.model");
  bool add_bos = false;
  if (model == "gpt2") {
    make_byte_level(file, tokens, parts, add_bos);
  } else if (model == "llama") {
    make_sentencepiece(file, tokens, parts);
    add_bos = true;
  } else {
    fail({.place = key_place(file, "tokenizer.ggml.model"),
          .found = fmt::format("\"{}\"", model),
          .expected = "gpt2 (byte-level BPE) or llama (SentencePiece BPE)"});
  }
  if (file.find_bool("tokenizer.ggml.add_bos_token").value_or(add_bos) && parts.special.bos) {
    parts.prefix.push_back(*parts.special.bos);
  }
  if (file.find_bool("tokenizer.ggml.add_eos_token").value_or(false) && parts.special.eos) {
    parts.suffix.push_back(*parts.special.eos);
  }
  return make_tokenizer(std::move(parts));
}

}  // namespace kvarena
