// tokenizer.json of Hugging Face `tokenizers`.

#include "harness/model/tokenizer/load_json.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "harness/model/tokenizer/json_scanner.h"

namespace kvarena {
namespace tokenizer_json {
namespace {

using nlohmann::json;

/// More than any vocabulary, and little enough to hold.
constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr int64_t kMaxId = int64_t{1} << 24;

std::string read_gzip(const std::filesystem::path& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) fail({.place = path.string(), .found = "a file that cannot be opened"});
  gzbuffer(file.get(), 1 << 17);
  std::string text;
  std::vector<char> buffer(1 << 17);
  int got = 0;
  while ((got = gzread(file.get(), buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    text.append(buffer.data(), static_cast<size_t>(got));
    if (text.size() > kMaxFileBytes)
      fail({.place = path.string(), .found = "more than 1 GiB", .expected = "a tokenizer"});
  }
  int error = Z_OK;
  const char* message = gzerror(file.get(), &error);
  if (got < 0 || (error != Z_OK && error != Z_STREAM_END)) {
    fail({.place = path.string(), .found = fmt::format("damaged gzip data ({})", message), .expected = "a whole file"});
  }
  return text;
}

/// `ids`: more than there can be. An id costs memory whether or not it has a token.
std::vector<AddedToken> read_added_tokens(const Component& root, int64_t ids) {
  std::vector<AddedToken> tokens;
  if (!root.has("added_tokens")) return tokens;
  for (const Component& item : root.list("added_tokens")) {
    AddedToken token{.content = item.string("content"),
                     .special = item.boolean("special", false),
                     .normalized = item.boolean("normalized", false),
                     .single_word = item.boolean("single_word", false),
                     .lstrip = item.boolean("lstrip", false),
                     .rstrip = item.boolean("rstrip", false)};
    const int64_t id = item.integer("id");
    if (id < 0 || id >= ids) {
      fail({.place = item.place + ".id",
            .found = fmt::to_string(id),
            .expected = "a token's id, from 0 up without large gaps"});
    }
    token.id = static_cast<int32_t>(id);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

int32_t template_token(const Component& processor, const std::string& name) {
  const Component tokens = processor.member("special_tokens");
  const Component token = tokens.member(name.c_str());
  const json ids = token.json.value("ids", json());
  if (!ids.is_array() || ids.size() != 1 || !ids[0].is_number_integer()) {
    fail({.place = token.place + ".ids", .found = ids.dump(), .expected = "a list of one id"});
  }
  const auto id = ids[0].get<int64_t>();
  if (id < 0 || id >= kMaxId) fail({.place = token.place + ".ids", .found = ids.dump(), .expected = "a token's id"});
  return static_cast<int32_t>(id);
}

/// [CLS] $A [SEP]: what stands before $A and behind it. Pairs of texts are not used here.
void read_template(const Component& processor, TokenizerParts& parts) {
  bool before = true;
  for (const Component& item : processor.list("single")) {
    if (item.has("Sequence")) {
      before = false;
    } else {
      const int32_t id = template_token(processor, item.member("SpecialToken").string("id"));
      (before ? parts.prefix : parts.suffix).push_back(id);
    }
  }
}

/// {"sep": ["</s>", 2], "cls": ["<s>", 0]}
int32_t pair_id(const Component& processor, const char* key) {
  const json pair = processor.json.value(key, json());
  if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_unsigned() || pair[1].get<uint64_t>() >= kMaxId) {
    fail({.place = processor.place + "." + key, .found = pair.dump(), .expected = "a token and its id"});
  }
  return pair[1].get<int32_t>();
}

void read_post_processor(const Component& processor, TokenizerParts& parts) {
  const std::string type = processor.type();
  if (type == "ByteLevel") return;  // trims offsets, which are not used here
  if (type == "TemplateProcessing") return read_template(processor, parts);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    parts.prefix = {pair_id(processor, "cls")};
    parts.suffix = {pair_id(processor, "sep")};
    return;
  }
  if (type == "Sequence") {
    for (const Component& part : processor.list("processors")) read_post_processor(part, parts);
    return;
  }
  processor.fail_type(
      "a post-processor among ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing, Sequence");
}

/// The file's JSON without the model, whose text is only cut out.
struct FileText {
  json root = json::object();
  std::string_view model;
};

FileText read_root(std::string_view text, const std::string& place) {
  FileText file;
  JsonScanner scanner(text, place);
  scanner.begin_object();
  try {
    for (std::string_view key; scanner.next_member(key);) {
      const std::string name(key);
      const std::string_view value = scanner.skip_value();
      if (name == "model") {
        file.model = value;
      } else {
        file.root[name] = json::parse(value);
      }
    }
  } catch (const json::exception& error) {
    fail({.place = place, .found = error.what(), .expected = "JSON"});
  }
  if (file.model.empty()) fail({.place = place, .found = "no \"model\"", .expected = "a tokenizer.json"});
  return file;
}

std::optional<int32_t> find_token(const json& config, const char* key, const TokenizerParts& parts) {
  const json entry = config.value(key, json());
  const json content = entry.is_object() ? entry.value("content", json()) : entry;
  if (!content.is_string()) return std::nullopt;
  const auto wanted = content.get<std::string>();
  for (const AddedToken& token : parts.added) {
    if (token.content == wanted) return token.id;
  }
  const int32_t id = parts.vocabulary->find(wanted);
  return id < 0 ? std::nullopt : std::optional(id);
}

/// bos, eos and the like, which tokenizer.json itself does not name.
void read_special_ids(const std::filesystem::path& file, TokenizerParts& parts) {
  if (!std::filesystem::exists(file)) return;
  try {
    const std::string text = read_file(file);
    require_shallow(text, file.string());
    const json config = json::parse(text);
    if (!config.is_object()) fail({.place = file.string(), .found = "no JSON object", .expected = "{ ... }"});
    parts.special.bos = find_token(config, "bos_token", parts);
    parts.special.eos = find_token(config, "eos_token", parts);
    parts.special.padding = find_token(config, "pad_token", parts);
    if (const auto unknown = find_token(config, "unk_token", parts)) parts.special.unknown = unknown;
    const json add_bos = config.value("add_bos_token", json());
    const json add_eos = config.value("add_eos_token", json());
    if (add_bos == true && parts.prefix.empty() && parts.special.bos) parts.prefix.push_back(*parts.special.bos);
    if (add_eos == true && parts.suffix.empty() && parts.special.eos) parts.suffix.push_back(*parts.special.eos);
  } catch (const json::exception& error) {
    fail({.place = file.string(), .found = error.what(), .expected = "JSON"});
  }
}

void check_consistent(const std::string& place, bool byte_level, const TokenizerParts& parts) {
  const bool decodes_bytes = parts.decoder.kind == Decoder::Kind::byte_level;
  if (byte_level != decodes_bytes) {
    fail({.place = place,
          .found = byte_level ? "a pre_tokenizer ByteLevel with another decoder"
                              : "a decoder ByteLevel without pre_tokenizer",
          .expected = "ByteLevel in both or in neither"});
  }
}

std::unique_ptr<Tokenizer> load(const std::filesystem::path& path) {
  const std::string place = path.string();
  const std::string text = path.extension() == ".gz" ? read_gzip(path) : read_file(path);
  require_shallow(text, place);
  const FileText file = read_root(text, place);
  const Component root{file.root, place + ":"};
  TokenizerParts parts;
  PreTokenizers cutting;
  try {
    parts.added = read_added_tokens(root, std::min(kMaxId, static_cast<int64_t>(text.size())));
    if (root.has("normalizer")) parts.normalizer = read_normalizer(root.member("normalizer"));
    if (root.has("pre_tokenizer")) read_pre_tokenizer(root.member("pre_tokenizer"), cutting);
    if (root.has("decoder")) parts.decoder = read_decoder(root.member("decoder"));
    if (root.has("post_processor")) read_post_processor(root.member("post_processor"), parts);
    parts.pre_tokenizers = std::move(cutting.steps);
    read_model(file.model, place + ": model", cutting.byte_level, parts);
  } catch (const nlohmann::json::exception& error) {
    fail({.place = place, .found = error.what(), .expected = "a tokenizer.json"});
  }
  check_consistent(place, cutting.byte_level, parts);
  read_special_ids(path.parent_path() / "tokenizer_config.json", parts);
  return make_tokenizer(std::move(parts));
}

}  // namespace
}  // namespace tokenizer_json

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& tokenizer_json) {
  return tokenizer_json::load(tokenizer_json);
}

}  // namespace kvarena
