#include "harness/cli/model_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/device/open_device.h"
#include "harness/engine/model_facts.h"
#include "harness/storage/hierarchy.h"

namespace kvarena::cli {
namespace {

constexpr const char* kAsStored = "as-stored";  // "as stored" of configs, as one word

/// Parses ids written as "1, 2,3" or "[1,2,3]".
std::vector<int32_t> parse_ids(const std::string& text, int64_t vocab_size) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  const auto is_filler = [](char c) { return c == ' ' || c == ',' || c == '[' || c == ']' || c == '\n'; };
  while (true) {
    while (at < end && is_filler(*at)) ++at;
    if (at == end) return ids;
    int64_t id = -1;
    const auto [after, error] = std::from_chars(at, end, id);
    if (error != std::errc{} || id < 0 || id >= vocab_size || (after < end && !is_filler(*after))) {
      fail({.place = "--ids",
            .found = fmt::format("\"{}\"", std::string(at, std::find_if(at, end, is_filler))),
            .expected = fmt::format("token ids from 0 to {}, separated by commas", vocab_size - 1)});
    }
    ids.push_back(static_cast<int32_t>(id));
    at = after;
  }
}

std::vector<int64_t> device_numbers(const std::vector<std::string>& words) {
  std::vector<int64_t> numbers;
  for (const std::string& word : words) {
    const char* const end = word.data() + word.size();
    const auto [after, error] = std::from_chars(word.data(), end, numbers.emplace_back());
    if (error != std::errc{} || after != end || numbers.back() < 0)
      fail({.place = "--devices", .found = fmt::format("\"{}\"", word), .expected = "numbers of devices, as 0 1"});
  }
  return numbers;
}

std::string prompt_text(const PromptOptions& options) {
  return options.prompt ? *options.prompt : read_file(*options.file);
}

std::vector<int32_t> tokens_of(const PromptOptions& options, const OpenedModel& model) {
  const int given = options.prompt.has_value() + options.file.has_value() + options.ids.has_value();
  if (given != 1) {
    fail({.place = "prompt",
          .found = given == 0 ? "none" : "several",
          .expected = "one of --prompt TEXT, --prompt-file FILE, --ids IDS"});
  }
  if (options.ids) {
    if (options.chat)
      fail({.place = "--chat", .found = "--ids beside it", .expected = "text: ids are taken as they are"});
    return parse_ids(*options.ids, model.config.vocab_size);
  }
  if (!options.chat) return model.tokenizer->encode(prompt_text(options));
  const std::vector<ChatMessage> messages{{.role = "user", .content = prompt_text(options)}};
  return model.tokenizer->encode(model.chat_template.render(messages, true), {.add_special = false});
}

}  // namespace

void ModelOptions::declare(OptionSet& o) {
  o.option("model", "NAME|PATH", model)
      .help("a folder of $KVARENA_HOME/models, a folder or .gguf file, or a name in Hugging Face's cache");
  o.option("dtype", "TYPE", dtype)
      .choices({"f32", "bf16", kAsStored})
      .help("of weights; as-stored: each as the checkpoint has it, with the results of f32");
  o.option("kv-dtype", "TYPE", kv_dtype)
      .choices({"f32", "f16", "bf16"})
      .help("of cache entries")
      .default_text("as --dtype, f32 beside as-stored");
  o.option("arithmetic", "NAME", arithmetic)
      .choices({"exact", "bf16"})
      .help("products with weights and entries in bf16: of float32 numbers, or of these rounded to bf16");
  o.option("device", "NAME", device)
      .choices({"cpu", "cuda"})
      .help("computes passes; methods, and attention where they steer it, stay with the processor");
  o.option("devices", "N", devices)
      .help("numbers of the devices that share the layers, beside --device cuda")
      .default_text("the first ones, as many as it needs");
}

TransformerOptions ModelOptions::types() const {
  return options_named(dtype == kAsStored ? "as stored" : dtype, kv_dtype.value_or(""), arithmetic);
}

OpenedModel open_chosen(const ModelOptions& options) { return open_model(find_model(options.model)); }

Transformer load_weights(const OpenedModel& model, const ModelOptions& options) {
  const TransformerOptions types = options.types();
  const bool on_device = options.device != "cpu";
  if (options.arithmetic == "bf16" && (options.dtype != "bf16" || on_device)) {
    fail({.place = "--arithmetic bf16",
          .found = fmt::format("--dtype {} --device {} beside it", options.dtype, options.device),
          .expected = "--dtype bf16 on the processor"});
  }
  if (on_device && !types.weights)
    fail({.place = "--dtype", .found = "as-stored and --device " + options.device, .expected = "f32 or bf16"});
  if (!on_device && !options.devices.empty())
    fail({.place = "--devices", .found = "--device cpu beside it", .expected = "--device cuda"});
  const std::vector<int64_t> devices = device_numbers(options.devices);
  Transformer transformer(model.config, *model.checkpoint, types);
  if (on_device) {
    transformer.offload_to(
        device::open_device("--device " + options.device, model.config, *model.checkpoint, types, devices));
  }
  return transformer;
}

std::shared_ptr<const ModelFacts> facts_of(const OpenedModel& model, const Transformer& transformer,
                                           const ModelOptions& options) {
  std::vector<storage::TierSettings> tiers = storage::usual_tiers();
  if (options.device != "cpu") tiers.front().memory = device::pinned_memory;
  auto facts = model_facts(transformer, {kvarena_home() / "fitted"}, std::make_shared<const storage::Hierarchy>(tiers));
  facts->text = text_facts(*model.tokenizer, model.chat_template);
  const std::filesystem::path& first = model.files.front();
  facts->file = (first.extension() == ".gguf" ? first : first.parent_path()).string();
  return facts;
}

void PromptOptions::declare(OptionSet& o) {
  o.option("prompt", "TEXT", prompt).help("the prompt");
  o.option("prompt-file", "FILE", file).help("the prompt is this file's text");
  o.option("ids", "IDS", ids).help("the prompt as token ids: 1,4093,198");
  o.flag("chat", chat).help("put the prompt into the model's chat template as the user's turn");
}

std::vector<int32_t> prompt_tokens(const PromptOptions& options, const OpenedModel& model) {
  std::vector<int32_t> tokens = tokens_of(options, model);
  if (tokens.empty()) fail({.place = "prompt", .found = "no token", .expected = "at least one"});
  return tokens;
}

std::vector<int32_t> stop_tokens(const OpenedModel& model) {
  std::vector<int32_t> ids = model.config.eos;
  if (const auto eos = model.tokenizer->special_ids().eos; eos && std::ranges::find(ids, *eos) == ids.end()) {
    ids.push_back(*eos);
  }
  return ids;
}

}  // namespace kvarena::cli
