// The "model" of tokenizer.json: vocabulary, merges and their settings.

#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/model/tokenizer/bpe.h"
#include "harness/model/tokenizer/bpe_files.h"
#include "harness/model/tokenizer/json_scanner.h"
#include "harness/model/tokenizer/load_json.h"
#include "harness/model/tokenizer/pre_tokenizer.h"
#include "harness/model/tokenizer/wordpiece.h"

namespace kvarena::tokenizer_json {
namespace {

using nlohmann::json;

struct ModelText {
  json settings = json::object();  // all members but the two below
  std::string_view vocab;
  std::string_view merges;
};

ModelText read_members(std::string_view text, const std::string& place) {
  ModelText model;
  JsonScanner scanner(text, place);
  scanner.begin_object();
  for (std::string_view key; scanner.next_member(key);) {
    const std::string name(key);
    const std::string_view value = scanner.skip_value();
    if (name == "vocab") {
      model.vocab = value;
    } else if (name == "merges") {
      model.merges = value;
    } else {
      model.settings[name] = json::parse(value);
    }
  }
  if (model.vocab.empty()) fail({.place = place, .found = "no \"vocab\"", .expected = "an object of tokens and ids"});
  return model;
}

std::shared_ptr<const Vocabulary> read_vocabulary(std::string_view text, const std::string& place, bool byte_level) {
  auto vocabulary = std::make_shared<Vocabulary>();
  vocabulary->reserve(text.size() / 16, text.size() / 2);  // `"the":1234,` and more: no entry is shorter than 5 bytes
  JsonScanner scanner(text, place);
  scanner.begin_object();
  for (std::string_view key; scanner.next_member(key);) {
    const int64_t id = scanner.read_integer();
    if (id < 0 || id >= static_cast<int64_t>(text.size())) {
      fail({.place = fmt::format("{}.\"{}\"", place, key),
            .found = fmt::to_string(id),
            .expected = "an id from 0 up without large gaps"});
    }
    if (id < vocabulary->size() && !vocabulary->bytes(static_cast<int32_t>(id)).empty()) {
      fail({.place = fmt::format("{}.\"{}\"", place, key),
            .found = fmt::format("id {}, which another token has", id),
            .expected = "an id of its own"});
    }
    if (byte_level) {
      add_byte_level_token(*vocabulary, static_cast<int32_t>(id), key, place);
    } else {
      add_text_token(*vocabulary, static_cast<int32_t>(id), key, place);
    }
  }
  return vocabulary;
}

std::vector<Bpe::Merge> read_merges(std::string_view text, const std::string& place, const Vocabulary& vocabulary,
                                    bool byte_level) {
  MergeParser parser(vocabulary, byte_level, place);
  parser.reserve(text.size() / 24);
  JsonScanner scanner(text, place);
  scanner.begin_array();
  std::string first;
  std::string second;
  while (scanner.next_item()) {
    if (scanner.peek() == '"') {  // "left right"
      parser.add(scanner.read_string(first));
      continue;
    }
    scanner.begin_array();  // ["left", "right"]
    const bool has_left = scanner.next_item();
    const std::string_view left = has_left ? scanner.read_string(first) : std::string_view();
    const bool has_right = has_left && scanner.next_item();
    const std::string_view right = has_right ? scanner.read_string(second) : std::string_view();
    if (!has_right || scanner.next_item()) {
      fail({.place = fmt::format("{}[{}]", place, parser.size()),
            .found = "a list of another length",
            .expected = "two tokens"});
    }
    parser.add(left, right);
  }
  return parser.take();
}

void refuse_unless_empty(const Component& settings, const char* key) {
  if (!settings.has(key)) return;
  const json& value = settings.json.at(key);
  const bool no_text = value.is_string() && value.get_ref<const std::string&>().empty();
  if (no_text || value == 0 || value == 0.0) return;
  fail({.place = settings.place + "." + key, .found = value.dump(), .expected = "null"});
}

void read_bpe(const ModelText& text, const Component& settings, bool byte_level, TokenizerParts& parts) {
  refuse_unless_empty(settings, "dropout");
  refuse_unless_empty(settings, "continuing_subword_prefix");
  refuse_unless_empty(settings, "end_of_word_suffix");
  const auto vocabulary = read_vocabulary(text.vocab, settings.place + ".vocab", byte_level);
  BpeOptions options{.byte_level = byte_level,
                     .byte_fallback = settings.boolean("byte_fallback", false),
                     .ignore_merges = settings.boolean("ignore_merges", false),
                     .fuse_unknown = settings.boolean("fuse_unk", false)};
  if (settings.has("unk_token")) {
    options.unknown = vocabulary->find(settings.string("unk_token"));
    if (options.unknown >= 0) parts.special.unknown = options.unknown;
  }
  auto model = std::make_unique<Bpe>(
      vocabulary, read_merges(text.merges, settings.place + ".merges", *vocabulary, byte_level), options);
  // SentencePiece vocabularies merge whole lines at once; cutting them at spaces first is only quicker.
  if (!byte_level && parts.pre_tokenizers.empty() && !options.ignore_merges && model->may_cut_before("\u2581")) {
    parts.pre_tokenizers.push_back(make_cut_before_runs("\u2581"));
  }
  parts.vocabulary = vocabulary;
  parts.model = std::move(model);
}

void read_wordpiece(const ModelText& text, const Component& settings, TokenizerParts& parts) {
  const auto vocabulary = read_vocabulary(text.vocab, settings.place + ".vocab", false);
  const std::string unknown = settings.string("unk_token");
  const int32_t id = vocabulary->find(unknown);
  if (id < 0) {
    fail({.place = settings.place + ".unk_token",
          .found = fmt::format("\"{}\"", unknown),
          .expected = "a token of the vocabulary"});
  }
  parts.special.unknown = id;
  parts.model = std::make_unique<WordPiece>(vocabulary, settings.string("continuing_subword_prefix"), id,
                                            settings.integer("max_input_chars_per_word"));
  parts.vocabulary = vocabulary;
}

}  // namespace

void read_model(std::string_view text, const std::string& place, bool byte_level, TokenizerParts& parts) {
  const ModelText model = read_members(text, place);
  const Component settings{model.settings, place};
  // Files of early versions leave the type out; only BPE has merges.
  const std::string type = settings.has("type") ? settings.type() : model.merges.empty() ? "" : "BPE";
  if (type == "BPE" && !model.merges.empty()) {
    read_bpe(model, settings, byte_level, parts);
  } else if (type == "WordPiece") {
    read_wordpiece(model, settings, parts);
  } else {
    fail({.place = place + ".type",
          .found = fmt::format("\"{}\"{}", type, type == "BPE" ? " without merges" : ""),
          .expected = "a model among BPE, WordPiece"});
  }
}

}  // namespace kvarena::tokenizer_json
