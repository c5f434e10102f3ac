// kvarena model tokenize: text to ids and back, a line at a time.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/core/error.h"
#include "harness/core/home.h"
#include "harness/core/json_text.h"
#include "harness/core/page.h"
#include "harness/model/gguf.h"
#include "harness/model/open_model.h"
#include "metrics/jsonl.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

struct Options {
  std::optional<std::filesystem::path> tokenizer;
  std::optional<std::string> model;
  std::optional<std::string> text;
  std::filesystem::path input = "/dev/stdin";
  bool decode = false;
  bool add_special = false;
  bool no_parse_special = false;
  bool keep_special = false;
  bool tokens = false;

  void declare(OptionSet& o) {
    o.option("tokenizer", "FILE", tokenizer)
        .help("a tokenizer.json (.gz too), a folder that holds one, or a .gguf file");
    o.option("model", "NAME|PATH", model).help("take the model's tokenizer").default_text(kDefaultModel);
    o.option("text", "TEXT", text).help("one text, instead of lines");
    o.option("input", "FILE", input)
        .help(
            "JSON Lines: a string, or an object with \"text\" (with --decode: a list of ids, or an object with "
            "\"ids\")")
        .default_text("standard input");
    o.flag("decode", decode).help("ids in, text out");
    o.flag("add-special", add_special).help("add what the tokenizer puts around a whole prompt");
    o.flag("no-parse-special", no_parse_special).help("special tokens written in a text are ordinary characters");
    o.flag("keep-special", keep_special).help("with --decode: write special tokens out");
    o.flag("tokens", tokens).help("also write each id's token as the vocabulary spells it");
  }
};

std::unique_ptr<Tokenizer> open_tokenizer(const Options& options) {
  if (options.tokenizer && options.model) {
    fail({.place = "--tokenizer", .found = "--model beside it", .expected = "one of them"});
  }
  if (!options.tokenizer) return open_model(find_model(options.model.value_or(kDefaultModel))).tokenizer;
  std::filesystem::path path = *options.tokenizer;
  if (path.extension() == ".gguf") return load_gguf_tokenizer(GgufFile(path));
  if (std::filesystem::is_directory(path)) {
    path /= std::filesystem::exists(path / "tokenizer.json") ? "tokenizer.json" : "tokenizer.json.gz";
  }
  return load_tokenizer(path);
}

/// The row's own value, or the member of the object that it is.
const json& payload(const json& row, const char* key) {
  if (!row.is_object()) return row;
  if (!row.contains(key)) {
    fail({.place = "row",
          .found = "no \"" + std::string(key) + "\"",
          .expected = fmt::format("an object with \"{}\"", key)});
  }
  return row.at(key);
}

json encode_row(const json& row, const Tokenizer& tokenizer, const Options& options) {
  const json& text = payload(row, "text");
  if (!text.is_string()) fail({.place = "text", .found = text.dump(), .expected = "a string"});
  const auto ids = tokenizer.encode(text.get_ref<const std::string&>(),
                                    {.add_special = options.add_special, .parse_special = !options.no_parse_special});
  json result{{"ids", ids}};
  if (options.tokens) {
    for (const int32_t id : ids) result["tokens"].push_back(tokenizer.token_text(id));
  }
  return result;
}

json decode_row(const json& row, const Tokenizer& tokenizer, const Options& options) {
  const json& list = payload(row, "ids");
  if (!list.is_array()) fail({.place = "ids", .found = list.dump(), .expected = "a list of token ids"});
  std::vector<int32_t> ids;
  for (const json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= tokenizer.vocab_size()) {
      fail({.place = fmt::format("ids[{}]", ids.size()),
            .found = id.dump(),
            .expected = fmt::format("an id from 0 to {}", tokenizer.vocab_size() - 1)});
    }
    ids.push_back(id.get<int32_t>());
  }
  json result{{"text", tokenizer.decode(ids, {.skip_special = !options.keep_special})}};
  if (options.tokens) {
    for (const int32_t id : ids) result["tokens"].push_back(tokenizer.token_text(id));
  }
  return result;
}

int run(const Options& options) {
  const auto tokenizer = open_tokenizer(options);
  const auto convert = [&](const json& row) {
    const json result = options.decode ? decode_row(row, *tokenizer, options) : encode_row(row, *tokenizer, options);
    print(json_text(result) + "\n");
  };
  if (options.text) {
    convert(options.decode ? json::parse("[" + *options.text + "]", nullptr, false) : json(*options.text));
  } else {
    metrics::for_each_line(options.input, [&](std::string_view line, int64_t) { convert(json::parse(line)); });
  }
  return 0;
}

}  // namespace

Command model_tokenize_command() {
  return make_command<Options>(
      {.name = "tokenize",
       .summary = "text to token ids, one JSON line each, or back",
       .examples = {{"kvarena model tokenize --text 'Hello, world'", "ids of one text"},
                    {"kvarena model tokenize --tokenizer tokenizer.json < texts.jsonl", "ids of each line's text"},
                    {"kvarena model tokenize --decode --text 1,2,3", "the text of ids"}}},
      run);
}

}  // namespace kvarena::cli
