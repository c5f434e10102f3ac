#include "harness/evaluate/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/device/open_device.h"
#include "harness/model/ranks/split_model.h"
#include "harness/model/tokenizer/token_ranges.h"

namespace kvarena::evaluate {
namespace {

OpenedModel open_entry(const experiment::ModelEntry& entry, const std::filesystem::path& home) {
  OpenedModel opened = open_model(entry.file(home));
  if (entry.window) opened.config.max_position = std::min(opened.config.max_position, *entry.window);
  return opened;
}

ChatTemplate pick_template(const OpenedModel& opened, const std::string& name) {
  if (name == "none") return {};
  return choose_chat_template(opened, name == "auto" ? "" : name);
}

kernels::DType parse_dtype(const std::string& name) {
  if (name == "f32") return kernels::DType::f32;
  if (name == "f16") return kernels::DType::f16;
  return kernels::DType::bf16;
}

/// Divides the rendered `text` into the part before the first user's turn, the context and the question. A template
/// that changes messages leaves this open.
PromptLayout layout_of(const datasets::Sample& sample, const std::string& text, std::vector<TextRange> ranges) {
  PromptLayout layout{.text = text, .ranges = std::move(ranges)};
  const auto token_at = [&](size_t byte) {
    const auto at = static_cast<int64_t>(byte);
    const auto it = std::ranges::find_if(layout.ranges, [&](const TextRange& range) { return range.end > at; });
    return static_cast<int64_t>(it - layout.ranges.begin());
  };
  size_t begin = 0;
  bool prefixed = false;
  for (size_t i = 0; i < sample.messages.size(); ++i) {
    begin = text.find(sample.messages[i].content, begin);
    if (begin == std::string::npos) break;
    if (!prefixed && sample.messages[i].role == "user") {
      layout.prefix = token_at(begin);
      prefixed = true;
    }
    if (i == sample.question.message) layout.question = token_at(begin + sample.question.byte);
    begin += sample.messages[i].content.size();
  }
  return layout;
}

}  // namespace

int64_t ModelTokens::leading_special_tokens() const {
  const std::vector<int32_t> with = tokenizer_->encode("x", {.add_special = true});
  const std::vector<int32_t> without = tokenizer_->encode("x", {.add_special = false});
  return static_cast<int64_t>(with.size() - without.size());
}

LoadedModel::LoadedModel(const experiment::ModelEntry& entry, const std::filesystem::path& home,
                         std::shared_ptr<const storage::Hierarchy> machine)
    : entry_(entry),
      file_(entry.file(home)),
      opened_(open_entry(entry, home)),
      template_(pick_template(opened_, entry.chat_template)),
      tokens_(*opened_.tokenizer),
      fitted_folder_(home / "fitted"),
      machine_(std::move(machine)) {}

Transformer& LoadedModel::transformer() {
  if (!transformer_) {
    const std::string& cache = entry_.kv_dtype.empty() ? entry_.dtype : entry_.kv_dtype;
    const TransformerOptions options{.weights = parse_dtype(entry_.dtype), .cache = parse_dtype(cache)};
    const bool on_device = entry_.device != "cpu";
    transformer_ = std::make_unique<Transformer>(opened_.config, *opened_.checkpoint, options,
                                                 gather_ranks({.ranks = entry_.tensor_parallel,
                                                               .listen = entry_.ranks_at,
                                                               .checkpoint = file_,
                                                               .weights = options.weights,
                                                               .devices = on_device}));
    if (on_device) {
      const std::string place = fmt::format("model {}: device \"{}\"", entry_.name, entry_.device);
      transformer_->offload_to(
          device::open_device(place, opened_.config, *opened_.checkpoint, options, transformer_->ranks()));
    }
  }
  return *transformer_;
}

std::shared_ptr<const ModelFacts> LoadedModel::facts() {
  if (!facts_) {
    auto facts = model_facts(transformer(), {fitted_folder_}, machine_);
    facts->text = text_facts(*opened_.tokenizer, template_);
    facts_ = std::move(facts);
  }
  return facts_;
}

Request LoadedModel::request(const datasets::Sample& sample, const experiment::EngineSettings& engine,
                             std::vector<std::string> metrics) {
  Request request{
      .sample = &sample, .tokenizer = opened_.tokenizer.get(), .facts = facts(), .metrics = std::move(metrics)};
  std::string text;
  if (sample.chat_template && entry_.chat_template != "none") {
    std::vector<ChatMessage> messages;
    for (const datasets::Message& message : sample.messages) messages.push_back({message.role, message.content});
    text = template_.render(messages, /*add_generation_prompt=*/true) + sample.answer_prefix;
    request.prompt = opened_.tokenizer->encode(text, {.add_special = false});
  } else {
    for (const datasets::Message& message : sample.messages) text += message.content;
    text += sample.answer_prefix;
    request.prompt = opened_.tokenizer->encode(text);
  }
  const bool behind = engine.chunk_tier != "device";
  if (behind) request.chunk_tier = engine.chunk_tier == "host" ? Tier::host : Tier::disk;
  request.layout = layout_of(sample, text, token_ranges(*opened_.tokenizer, request.prompt, text));

  const int64_t new_tokens = engine.max_new_tokens.value_or(sample.generation.max_new_tokens);
  const auto needed = static_cast<int64_t>(request.prompt.size()) + new_tokens;
  if (needed > opened_.config.max_position) {
    fail({.found = fmt::format("{} prompt tokens and room for {} new ones", request.prompt.size(), new_tokens),
          .expected = fmt::format("at most {} together, the window of {}", opened_.config.max_position, entry_.name),
          .action = "use shorter samples, fewer new tokens, or a model with a larger window"});
  }
  request.stop = stop_rule(sample, *opened_.tokenizer, opened_.config.eos, new_tokens);
  request.sampling = {.temperature = engine.temperature > 0 ? engine.temperature : sample.generation.temperature,
                      .top_p = engine.temperature > 0 ? engine.top_p : sample.generation.top_p,
                      .seed = static_cast<uint64_t>(engine.seed)};
  return request;
}

}  // namespace kvarena::evaluate
