// Normalisers, cutting steps and decoders of tokenizer.json.

#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/model/tokenizer/load_json.h"
#include "harness/model/tokenizer/pre_tokenizer.h"
#include "harness/model/tokenizer/scanners.h"

namespace kvarena::tokenizer_json {

std::string Component::string(const char* key) const {
  if (!json.is_object() || !json.contains(key) || !json.at(key).is_string()) {
    fail({.place = place, .found = json.dump().substr(0, 80), .expected = fmt::format("a string \"{}\"", key)});
  }
  return json.at(key).get<std::string>();
}

bool Component::boolean(const char* key, bool absent) const {
  if (!has(key)) return absent;
  if (!json.at(key).is_boolean()) {
    fail({.place = place + "." + key, .found = json.at(key).dump().substr(0, 80), .expected = "true or false"});
  }
  return json.at(key).get<bool>();
}

int64_t Component::integer(const char* key) const {
  if (!has(key) || !json.at(key).is_number_integer()) {
    fail({.place = place, .found = json.dump().substr(0, 80), .expected = fmt::format("an integer \"{}\"", key)});
  }
  return json.at(key).get<int64_t>();
}

Component Component::member(const char* key) const {
  if (!has(key) || !json.at(key).is_object()) {
    fail({.place = place, .found = json.dump().substr(0, 80), .expected = fmt::format("an object \"{}\"", key)});
  }
  return {json.at(key), place + "." + key};
}

std::vector<Component> Component::list(const char* key) const {
  if (!has(key) || !json.at(key).is_array()) {
    fail({.place = place, .found = json.dump().substr(0, 80), .expected = fmt::format("a list \"{}\"", key)});
  }
  std::vector<Component> items;
  for (const nlohmann::json& item : json.at(key)) {
    items.push_back({item, fmt::format("{}.{}[{}]", place, key, items.size())});
  }
  return items;
}

void Component::fail_type(std::string_view expected) const {
  fail({.place = place + ".type", .found = fmt::format("\"{}\"", type()), .expected = std::string(expected)});
}

NormalizerPtr read_normalizer(const Component& component) {
  const std::string type = component.type();
  if (type == "NFC") return make_unicode_normalizer(unicode::Form::nfc);
  if (type == "NFD") return make_unicode_normalizer(unicode::Form::nfd);
  if (type == "NFKC") return make_unicode_normalizer(unicode::Form::nfkc);
  if (type == "NFKD") return make_unicode_normalizer(unicode::Form::nfkd);
  if (type == "Lowercase") return make_lowercase();
  if (type == "StripAccents") return make_strip_accents();
  if (type == "Strip") {
    return make_strip(component.boolean("strip_left", true), component.boolean("strip_right", true));
  }
  if (type == "Prepend") return make_prepend(component.string("prepend"));
  if (type == "Replace") {
    const Component pattern = component.member("pattern");
    if (pattern.has("String")) return make_replace(pattern.string("String"), component.string("content"));
    return make_regex_replace(pattern.string("Regex"), component.string("content"), pattern.place);
  }
  if (type == "BertNormalizer") {
    const bool lowercase = component.boolean("lowercase", true);
    return make_bert_normalizer({.clean_text = component.boolean("clean_text", true),
                                 .handle_chinese_chars = component.boolean("handle_chinese_chars", true),
                                 .strip_accents = component.boolean("strip_accents", lowercase),
                                 .lowercase = lowercase});
  }
  if (type == "Sequence") {
    std::vector<NormalizerPtr> parts;
    for (const Component& part : component.list("normalizers")) parts.push_back(read_normalizer(part));
    return make_sequence(std::move(parts));
  }
  component.fail_type(
      "a normaliser among NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, BertNormalizer, "
      "Sequence");
}

namespace {

SplitBehavior read_behavior(const Component& component) {
  const std::string name = component.string("behavior");
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  fail({.place = component.place + ".behavior",
        .found = fmt::format("\"{}\"", name),
        .expected = "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous"});
}

PreTokenizerPtr read_split(const Component& component) {
  const Component pattern = component.member("pattern");
  const SplitBehavior behavior = read_behavior(component);
  const bool invert = component.boolean("invert", false);
  if (pattern.has("String")) return make_string_split(pattern.string("String"), behavior, invert);
  const std::string regex = pattern.string("Regex");
  // Dropping what lies between matches is the same as isolating them where a pattern leaves nothing between.
  const bool covers_all = regex == kGpt2Pattern || regex == kLlama3Pattern || regex == kQwenPattern;
  const bool isolates =
      behavior == SplitBehavior::isolated || (behavior == SplitBehavior::removed && invert && covers_all);
  if (isolates) {
    if (PreTokenizerPtr scanner = make_scanner(regex)) return scanner;
  }
  return make_regex_split(regex, behavior, invert, pattern.place);
}

PreTokenizerPtr read_metaspace(const Component& component) {
  PrependScheme scheme = component.boolean("add_prefix_space", true) ? PrependScheme::always : PrependScheme::never;
  if (component.has("prepend_scheme")) {
    const std::string name = component.string("prepend_scheme");
    scheme = name == "always"  ? PrependScheme::always
             : name == "first" ? PrependScheme::first
             : name == "never" ? PrependScheme::never
                               : throw UserError(component.place + ".prepend_scheme: found \"" + name +
                                                 "\", expected always, first or never");
  }
  return make_metaspace(component.string("replacement"), scheme, component.boolean("split", true));
}

}  // namespace

void read_pre_tokenizer(const Component& component, PreTokenizers& out) {
  const std::string type = component.type();
  if (out.byte_level) {
    fail({.place = component.place,
          .found = fmt::format("{} after ByteLevel", type),
          .expected = "ByteLevel as the last step"});
  }
  if (type == "Sequence") {
    for (const Component& part : component.list("pretokenizers")) read_pre_tokenizer(part, out);
  } else if (type == "ByteLevel") {
    if (component.boolean("add_prefix_space", true)) out.steps.push_back(make_prefix_space());
    if (component.boolean("use_regex", true)) out.steps.push_back(make_scanner(kGpt2Pattern));
    out.byte_level = true;
  } else if (type == "Split") {
    out.steps.push_back(read_split(component));
  } else if (type == "Digits") {
    out.steps.push_back(make_digits(component.boolean("individual_digits", false)));
  } else if (type == "Metaspace") {
    out.steps.push_back(read_metaspace(component));
  } else if (type == "Punctuation") {
    out.steps.push_back(
        make_punctuation_split(component.has("behavior") ? read_behavior(component) : SplitBehavior::isolated));
  } else if (type == "WhitespaceSplit") {
    out.steps.push_back(make_white_space_split());
  } else if (type == "Whitespace") {
    out.steps.push_back(make_regex_split(R"(\w+|[^\w\s]+)", SplitBehavior::removed, true, component.place));
  } else if (type == "BertPreTokenizer") {
    out.steps.push_back(make_white_space_split());
    out.steps.push_back(make_punctuation_split(SplitBehavior::isolated));
  } else {
    component.fail_type(
        "a pre-tokenizer among ByteLevel, Split, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit, "
        "BertPreTokenizer, Sequence");
  }
}

namespace {

void read_sentencepiece_step(const Component& component, Decoder& decoder, bool& fused) {
  const std::string type = component.type();
  decoder.kind = Decoder::Kind::sentencepiece;
  if (type == "Replace") {
    decoder.replacements.emplace_back(component.member("pattern").string("String"), component.string("content"));
  } else if (type == "ByteFallback") {
    decoder.byte_fallback = true;
  } else if (type == "Fuse") {
    fused = true;
  } else if (type == "Strip") {
    const bool leading =
        component.string("content") == " " && component.integer("start") <= 1 && component.integer("stop") == 0;
    if (!leading || !fused) {
      fail({.place = component.place,
            .found = component.json.dump(),
            .expected = "Strip of at most one leading space, after Fuse"});
    }
    decoder.strip_first_space = component.integer("start") == 1;
  } else if (type == "Metaspace") {
    decoder.replacements.emplace_back(component.string("replacement"), " ");
    const bool prepends = component.has("prepend_scheme") ? component.string("prepend_scheme") != "never"
                                                          : component.boolean("add_prefix_space", true);
    if (prepends) decoder.first_token_drops = component.string("replacement");
  } else {
    component.fail_type(
        "a decoder among ByteLevel, WordPiece, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence");
  }
}

}  // namespace

Decoder read_decoder(const Component& component) {
  const std::string type = component.type();
  Decoder decoder;
  if (type == "ByteLevel") {
    decoder.kind = Decoder::Kind::byte_level;
  } else if (type == "WordPiece") {
    decoder.kind = Decoder::Kind::wordpiece;
    decoder.continuation = component.string("prefix");
    decoder.cleanup = component.boolean("cleanup", true);
  } else {
    bool fused = false;
    if (type == "Sequence") {
      const std::vector<Component> steps = component.list("decoders");
      if (steps.size() == 1) return read_decoder(steps[0]);
      for (const Component& step : steps) read_sentencepiece_step(step, decoder, fused);
    } else {
      read_sentencepiece_step(component, decoder, fused);
    }
  }
  return decoder;
}

}  // namespace kvarena::tokenizer_json
