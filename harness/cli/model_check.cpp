// kvarena model check: whether a model can be used, and by which methods.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/model_input.h"
#include "harness/cli/registry_text.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "harness/core/page.h"
#include "harness/core/terminal.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

constexpr int64_t kNewTokens = 10;
constexpr int64_t kPromptTokens = 256;

struct Options {
  std::string model = kDefaultModel;
  bool as_json = false;

  void declare(OptionSet& o) {
    o.positional("MODEL", model).help("a name, a folder or a file, as --model of other commands takes it");
    o.flag("json", as_json).help("for programs");
  }
};

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Findings {
  Pairs facts;    // of the model
  Pairs refused;  // methods, and why
  int64_t tried = 0;
};

std::string sizes_of(const ModelConfig& config) {
  const int64_t recurrent = config.layers - config.cached_layers();
  return fmt::format("{} layers{}, {} query heads over {} of KV, head_dim {}, hidden {}, window {}", config.layers,
                     recurrent > 0 ? fmt::format(", {} of them recurrent", recurrent) : "", config.q_heads,
                     config.kv_heads, config.head_dim, config.hidden_size, config.max_position);
}

/// Features of the family that this model has, beside rotated attention, RMS norms and gated feed-forward.
std::string features_of(const ModelConfig& config) {
  const std::vector<std::pair<bool, std::string>> all = {
      {config.is_latent(), "attention over latents"},
      {config.sliding_window > 0, fmt::format("windows of {} tokens", config.sliding_window)},
      {config.expert.experts > 0,
       fmt::format("{} experts, {} a token", config.expert.experts, config.expert.experts_per_token)},
      {config.qkv_bias, "biases"},
      {config.qk_norm, "norms of queries and keys"},
      {config.output_norms, "norms behind attention and feed-forward"},
      {config.gate_limit > 0, "clamped gates"},
      {config.attention_sinks, "attention sinks"},
      {!config.recurrent_layers.empty(), fmt::format("a gated delta rule of {} heads of {} x {}", config.delta.v_heads,
                                                     config.delta.k_dim, config.delta.v_dim)},
      {config.output_gate, "gated attention"},
      {config.expert.shared_gate, "gated shared experts"},
      {config.embedding_scale != 1, "scaled embeddings"},
      {config.residual_scale != 1, "scaled residuals"},
      {config.sliding_rope_theta.has_value(), "two rotations"},
      {!config.unrotated_layers.empty(), "layers without rotation"},
      {config.rotary_dim() < config.turned_dim(), "rotation of a part of each head"},
      {config.rope_scaling.type != RopeScaling::Type::none, "scaled rotation"},
      {config.tie_embeddings, "tied embeddings"},
      {config.logit_cap > 0, "capped logits"}};
  std::string text;
  for (const auto& [has, name] : all) {
    if (has) text += (text.empty() ? "" : ", ") + name;
  }
  return text.empty() ? "none" : text;
}

/// Bytes of a request with full KV.
std::string cache_of(const Transformer& model) {
  int64_t entry = 0, states = 0;
  for (int64_t layer = 0; layer < model.config().cached_layers(); ++layer)
    entry += model.layer_shape(layer).entry_bytes();
  for (const RecurrentShape& shape : model.state_shapes()) states += shape.bytes();
  return fmt::format("{} a token{}", bytes_text(entry),
                     states > 0 ? fmt::format(", {} of states a request", bytes_text(states)) : "");
}

int64_t bytes_of(const std::vector<std::filesystem::path>& files) {
  int64_t bytes = 0;
  for (const std::filesystem::path& file : files) bytes += static_cast<int64_t>(std::filesystem::file_size(file));
  return bytes;
}

std::string rendered(const ChatTemplate& chat) {
  if (chat.name() == "none") return "none: chats need \"template\" beside the model's name";
  try {
    const std::array user{ChatMessage{.role = "user", .content = "Hello"}};
    const std::string text = chat.render(user, true);
    return fmt::format("{}{}: {}", chat.name(), chat.thinking() ? ", thinks" : "", json(text).dump());
  } catch (const UserError& error) {
    return fmt::format("cannot be used: {}", error.what());
  }
}

/// A prompt of ordinary words: kPromptTokens, or a quarter of a small window.
std::vector<int32_t> prompt_of(const OpenedModel& model) {
  std::string text;
  for (int i = 0; i < 64; ++i) text += fmt::format("Room {} of the house has {} windows. ", i, i * 7 % 5);
  std::vector<int32_t> tokens = model.tokenizer->encode(text);
  tokens.resize(static_cast<size_t>(std::min({std::ssize(tokens), kPromptTokens, model.config.max_position / 4})));
  return tokens;
}

using NamedMethod = std::pair<std::string, std::unique_ptr<Method>>;

/// All methods at the settings of their examples, the reference first; those that cannot be made so are refused.
std::vector<NamedMethod> all_methods(Findings& findings) {
  std::vector<NamedMethod> methods;
  for (const MethodEntry& entry : method_registry()) {
    const std::string& name = entry.info.name;
    const json spec = example_settings(entry);
    if (spec.is_null()) {
      findings.refused.emplace_back(name, fmt::format("has to be told what it works with: `kvarena methods {}`", name));
    } else {
      methods.emplace_back(name, make_method(spec, name));
    }
  }
  findings.tried = std::ssize(method_registry());
  const auto is_reference = [](const NamedMethod& method) {
    return find_method(method.first)->family == Family::reference;
  };
  std::ranges::stable_partition(methods, is_reference);
  return methods;
}

/// Text of ten tokens under a method. Throws UserError with the method's reason.
std::string answer_under(const Method& method, const OpenedModel& model, Transformer& transformer,
                         const Prefill& prompt) {
  const SessionOptions options{.stop = {.max_new_tokens = kNewTokens}, .tokenizer = model.tokenizer.get()};
  const auto session = start_session(transformer, prompt, method, options);
  Session* const sessions[] = {session.get()};
  run_together(transformer, sessions);
  if (!session->failure.empty()) throw UserError(session->failure);
  return model.tokenizer->decode(session->tokens);
}

/// Reads the prompt once, with all that any method needs of it, and runs each method on it.
void try_methods(Findings& findings, const OpenedModel& model, Transformer& transformer) {
  const std::vector<NamedMethod> methods = all_methods(findings);
  Needs needs;
  for (const auto& [name, method] : methods) needs = combine(needs, method->needs());
  const std::vector<int32_t> tokens = prompt_of(model);
  const Prefill prompt = prefill(transformer, tokens, needs, kPrefillChunk, facts_of(model, transformer, {}));
  for (const auto& [name, method] : methods) {
    try {
      const std::string answer = answer_under(*method, model, transformer, prompt);
      if (&name == &methods.front().first) findings.facts.emplace_back("answers", json(answer).dump());
    } catch (const UserError& error) {
      findings.refused.emplace_back(name, error.what());
    }
  }
}

Findings findings_of(const Options& options) {
  const OpenedModel model = open_model(find_model(options.model));
  Findings findings;
  Pairs& facts = findings.facts;
  facts.emplace_back("path", model.checkpoint->path().string());
  facts.emplace_back("family", model.config.architecture);
  facts.emplace_back("sizes", sizes_of(model.config));
  facts.emplace_back("features", features_of(model.config));
  facts.emplace_back("files", fmt::format("{} in {} files", bytes_text(bytes_of(model.files)), model.files.size()));
  facts.emplace_back("vocabulary", fmt::format("{} tokens", model.tokenizer->vocab_size()));
  facts.emplace_back("template", rendered(model.chat_template));
  Transformer transformer = load_weights(model, {.model = options.model});
  facts.emplace_back("weights", fmt::format("all there, of the shapes that the description says; {} in bf16",
                                            bytes_text(transformer.weight_bytes())));
  facts.emplace_back("cache", cache_of(transformer));
  try_methods(findings, model, transformer);
  return findings;
}

int run(const Options& options) {
  const Findings findings = findings_of(options);
  if (options.as_json) {
    const json report = {{"model", json(std::map(findings.facts.begin(), findings.facts.end()))},
                         {"methods", findings.tried},
                         {"refused", json(std::map(findings.refused.begin(), findings.refused.end()))}};
    print(json_text(report, 2) + "\n");
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : findings.facts) rows.push_back({name, value});
  rows.push_back({"methods", fmt::format("{} of {} run, at the settings of their examples",
                                         findings.tried - std::ssize(findings.refused), findings.tried)});
  for (const auto& [name, reason] : findings.refused) rows.push_back({"", fmt::format("{}: {}", name, reason)});
  print(Page().columns(rows));
  return 0;
}

}  // namespace

Command model_check_command() {
  return make_command<Options>(
      {.name = "check",
       .summary = "whether a model can be used, and which methods run on it",
       .description =
           "Opens the model, compares its description with its weights, renders its chat template, and answers "
           "with ten tokens under every method, at the settings of its example.",
       .examples = {{"kvarena model check Qwen/Qwen3-0.6B", "a model of Hugging Face's cache"}}},
      run);
}

}  // namespace kvarena::cli
