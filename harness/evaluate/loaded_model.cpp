#include "harness/evaluate/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/device/open_device.h"
#include "harness/engine/foreign/transformers_engine.h"
#include "harness/engine/reuse/rendered_results.h"
#include "harness/evaluate/server_entry.h"
#include "harness/model/open_model_elsewhere.h"
#include "harness/model/tokenizer/token_ranges.h"

namespace kvarena::evaluate {
namespace {

OpenedModel open_entry(const experiment::ModelEntry& entry, const std::filesystem::path& home) {
  const std::filesystem::path file = entry.file(home);
  OpenedModel opened = entry.behind_endpoint() ? open_model_elsewhere(file) : open_model(file);
  if (entry.window) opened.config.max_position = std::min(opened.config.max_position, *entry.window);
  return opened;
}

ChatTemplate pick_template(const OpenedModel& opened, const experiment::ModelEntry& entry) {
  if (entry.chat_template == "none") return {};
  const ChatTemplate chat = choose_chat_template(opened, entry.chat_template == "auto" ? "" : entry.chat_template);
  if (entry.thinking == "auto") return chat;
  const bool thinks = entry.thinking == "on";
  return chat.with({{"enable_thinking", thinks}, {"thinking", thinks}});
}

/// Bytes of a rendered text where the first user's turn, the question, and answers and questions of later turns begin,
/// and where results of tools are. A template that changes messages leaves them open, unless it takes away no more than
/// the blanks around them.
struct PartStarts {
  std::optional<size_t> user;
  std::optional<size_t> question;
  std::vector<size_t> turns;
  std::vector<RenderedResult> results;
};

/// Results in one of the sample's messages.
std::vector<datasets::ToolResult> results_in(const datasets::Sample& sample, size_t message) {
  std::vector<datasets::ToolResult> results;
  for (const datasets::ToolResult& result : sample.results) {
    if (result.message == message) results.push_back(result);
  }
  const datasets::Message& whole = sample.messages[message];
  if (results.empty() && whole.role == "tool") {
    results.push_back({.message = message, .begin = 0, .end = whole.content.size(), .tool = ""});
  }
  return results;
}

PartStarts starts_of(const datasets::Sample& sample, const std::string& text) {
  PartStarts starts;
  size_t begin = 0;
  for (size_t i = 0; i < sample.messages.size(); ++i) {
    const std::optional<RenderedContent> content = find_content(text, sample.messages[i].content, begin);
    if (!content) break;
    if (!starts.user && sample.messages[i].role == "user") starts.user = content->begin;
    if (i == sample.question.message) starts.question = content->place(sample.question.byte);
    for (const datasets::PromptPosition& turn : sample.turns) {
      if (turn.message == i) starts.turns.push_back(content->place(turn.byte));
    }
    for (const datasets::ToolResult& result : results_in(sample, i)) {
      const TextRange bytes{static_cast<int64_t>(content->place(result.begin)),
                            static_cast<int64_t>(content->place(result.end))};
      starts.results.push_back({bytes, result.tool});
    }
    begin = content->end();
  }
  return starts;
}

/// The first token that ends behind the byte.
int64_t token_at(const std::vector<TextRange>& ranges, size_t byte) {
  const auto at = static_cast<int64_t>(byte);
  return std::ranges::find_if(ranges, [&](const TextRange& range) { return range.end > at; }) - ranges.begin();
}

/// The rendered text as methods find it.
struct DividedText {
  std::string compressed;
  std::vector<std::string> after;  // pieces that follow, each tokenised by itself
};

/// Divides the text where the protocol says. Nothing where the text does not tell all places.
std::optional<DividedText> divide(const datasets::Sample& sample, const PartStarts& starts, const std::string& text,
                                  experiment::Question question) {
  using experiment::Question;
  const bool first_seen = question == Question::seen || question == Question::first_seen;
  if (question == Question::seen && sample.turns.empty()) return DividedText{.compressed = text, .after = {}};
  const bool told = starts.question && sample.has_context() && *starts.question > 0 && *starts.question < text.size();
  if (!told || starts.turns.size() != sample.turns.size()) return std::nullopt;
  std::vector<size_t> cuts = starts.turns;
  if (!first_seen) cuts.insert(cuts.begin(), *starts.question);
  cuts.push_back(text.size());
  DividedText divided{.compressed = text.substr(0, cuts.front()), .after = {}};
  for (size_t i = 1; i < cuts.size(); ++i) divided.after.push_back(text.substr(cuts[i - 1], cuts[i] - cuts[i - 1]));
  return divided;
}

DividedText divided_or_refused(const datasets::Sample& sample, const PartStarts& starts, const std::string& text,
                               experiment::Question question) {
  if (auto divided = divide(sample, starts, text, question)) return std::move(*divided);
  fail({.place = fmt::format("sample {}", sample.id),
        .found = sample.has_context() ? "a chat template that changes messages, so that the question is not found in it"
                                      : "a prompt that does not say where its question starts",
        .expected = "a context with a question after it, for a question that methods have not seen",
        .action = "give the workload \"question\": \"seen\""});
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
      opened_(open_entry(entry, home)),
      template_(pick_template(opened_, entry)),
      tokens_(*opened_.tokenizer),
      fitted_folder_(home / "fitted"),
      machine_(std::move(machine)),
      home_(home) {
  if (entry.requests_per_minute > 0) pace_ = std::make_shared<RequestPace>(entry.requests_per_minute);
  if (!entry.elsewhere() || entry.behind_endpoint()) return;
  elsewhere_ = std::make_unique<TransformersEngine>(entry.file(home), entry.dtype, entry.device);
}

LoadedModel::~LoadedModel() = default;

CompletionEndpoint& LoadedModel::server(const experiment::ComponentEntry& method) {
  const bool up = started_ && started_for_ == method.label && started_->alive();
  if (method.starts_server() && !up) {
    started_.reset();  // before another takes its place
    started_ = start_server(entry_, method, home_);
    started_for_ = method.label;
  }
  auto& server = servers_[method.label];
  if (!server) {
    ServerSettings settings = server_of(entry_, method);
    settings.pace = pace_;
    auto made = std::make_unique<CompletionEndpoint>(std::move(settings));
    (void)made->version();
    server = std::move(made);
  }
  return *server;
}

const LoadedModel::ServerFacts& LoadedModel::server_facts(const experiment::ComponentEntry& method) {
  const auto known = server_facts_.find(method.label);
  if (known != server_facts_.end()) return known->second;
  CompletionEndpoint& server = this->server(method);
  ServerFacts facts{.version = server.version(), .chat_template = compare_templates(server)};
  if (method.starts_server()) started_.reset();
  return server_facts_[method.label] = std::move(facts);
}

std::string LoadedModel::compare_templates(const CompletionEndpoint& server) const {
  if (entry_.chat_template == "none") return "not asked";
  const std::vector<std::pair<std::string, std::string>> turns = {
      {"user", "Who?"}, {"assistant", "Ann."}, {"user", "Why?"}};
  std::vector<ChatMessage> messages;
  for (const auto& [role, content] : turns) messages.push_back({role, content});
  const std::string text = template_.render(messages, /*add_generation_prompt=*/true);
  const std::vector<int32_t> tokens = opened_.tokenizer->encode(text, {.add_special = false});
  constexpr const char* kSame = "as ours";
  const CompletionEndpoint::Rendered theirs = server.render(turns);
  if (const auto* other = std::get_if<std::string>(&theirs)) {
    return *other == text ? kSame : fmt::format("not ours: {}", shown_words(*other, ""));
  }
  if (const auto* other = std::get_if<std::vector<int32_t>>(&theirs)) {
    return *other == tokens ? kSame
                            : fmt::format("not ours: {}",
                                          shown_words(opened_.tokenizer->decode(*other, {.skip_special = false}), ""));
  }
  if (const auto* count = std::get_if<int64_t>(&theirs)) {
    return *count == std::ssize(tokens) ? "as long as ours"
                                        : fmt::format("not ours: {} tokens, of ours {}", *count, tokens.size());
  }
  return "not told";
}

TransformerOptions LoadedModel::options() const {
  return options_named(entry_.dtype, entry_.kv_dtype, entry_.arithmetic);
}

Transformer& LoadedModel::transformer() {
  if (!transformer_) {
    const TransformerOptions options = this->options();
    transformer_ = std::make_unique<Transformer>(opened_.config, *opened_.checkpoint, options);
    if (entry_.device != "cpu") {
      const std::string place = fmt::format("model {}: device \"{}\"", entry_.name, entry_.device);
      transformer_->offload_to(
          device::open_device(place, opened_.config, *opened_.checkpoint, options, entry_.devices));
    }
  }
  return *transformer_;
}

std::shared_ptr<const ModelFacts> LoadedModel::facts() {
  if (!facts_ && !entry_.elsewhere()) {
    auto facts = model_facts(transformer(), {fitted_folder_}, machine_);
    facts->file = entry_.file(home_).string();
    facts->text = text_facts(*opened_.tokenizer, template_);
    facts_ = std::move(facts);
  }
  return facts_;
}

bool LoadedModel::templated(const datasets::Sample& sample) const {
  return sample.chat_template && entry_.chat_template != "none";
}

std::string LoadedModel::render(const datasets::Sample& sample) const {
  if (templated(sample)) {
    std::vector<ChatMessage> messages;
    for (const datasets::Message& message : sample.messages) messages.push_back({message.role, message.content});
    return template_.render(messages, /*add_generation_prompt=*/true) + sample.answer_prefix;
  }
  std::string text;
  for (const datasets::Message& message : sample.messages) text += message.content;
  return text + sample.answer_prefix;
}

bool LoadedModel::fits(const datasets::Sample& sample, const experiment::EngineSettings& engine,
                       experiment::Question question) const {
  const int64_t room = opened_.config.max_position - sample.live.most_tokens -
                       engine.max_new_tokens.value_or(sample.generation.max_new_tokens);
  const std::string text = render(sample);
  constexpr int64_t kAddedTokens = 8;  // by the tokenizer; no token is shorter than a byte
  if (std::ssize(text) + kAddedTokens <= room) return true;
  // Where the places are not told, the request is refused when it is made.
  const DividedText divided =
      divide(sample, starts_of(sample, text), text, question).value_or(DividedText{.compressed = text, .after = {}});
  int64_t tokens = std::ssize(opened_.tokenizer->encode(divided.compressed, {.add_special = !templated(sample)}));
  for (const std::string& piece : divided.after) {
    tokens += std::ssize(opened_.tokenizer->encode(piece, {.add_special = false}));
  }
  return tokens <= room;
}

Request LoadedModel::request(const datasets::Sample& sample, const experiment::EngineSettings& engine,
                             std::vector<std::string> metrics, experiment::Question question,
                             const std::optional<experiment::RequestTokens>& tokens) {
  using experiment::Question;
  Request request{
      .sample = &sample, .tokenizer = opened_.tokenizer.get(), .facts = facts(), .metrics = std::move(metrics)};
  const std::string whole = render(sample);
  const PartStarts starts = starts_of(sample, whole);
  const auto [text, after] = divided_or_refused(sample, starts, whole, question);
  request.prompt = opened_.tokenizer->encode(text, {.add_special = !templated(sample)});
  const bool behind = engine.chunk_tier != "device";
  if (behind) request.chunk_tier = engine.chunk_tier == "host" ? Tier::host : Tier::disk;
  request.layout = {.text = text, .ranges = token_ranges(*opened_.tokenizer, request.prompt, text), .results = {}};
  int64_t end = std::ssize(text);
  add_results(request.layout.results, starts.results, text, 0, request.layout.ranges, 0);
  for (const std::string& piece : after) {
    const std::vector<int32_t> ids = opened_.tokenizer->encode(piece, {.add_special = false});
    if (!starts.results.empty()) {
      add_results(request.layout.results, starts.results, piece, end, token_ranges(*opened_.tokenizer, ids, piece),
                  request.asked_tokens());
    }
    request.question.insert(request.question.end(), ids.begin(), ids.end());
    end += std::ssize(piece);
  }
  if (starts.user) request.layout.prefix = token_at(request.layout.ranges, *starts.user);
  const bool compresses_question = question == Question::seen || question == Question::first_seen;
  if (starts.question && compresses_question) {
    request.layout.question = token_at(request.layout.ranges, *starts.question);
  }

  if (tokens) resize_prompt(request, tokens->prompt);

  const int64_t new_tokens = engine.max_new_tokens.value_or(sample.generation.max_new_tokens);
  const int64_t needed = request.asked_tokens() + new_tokens;
  if (needed > opened_.config.max_position) {
    fail({.found = fmt::format("{} prompt tokens and room for {} new ones", request.asked_tokens(), new_tokens),
          .expected = fmt::format("at most {} together, the window of {}", opened_.config.max_position, entry_.name),
          .action = "use shorter samples, fewer new tokens, or a model with a larger window"});
  }
  if (templated(sample)) request.thinking = thinking_of(template_, *opened_.tokenizer, whole);
  request.stop = stop_rule(sample, *opened_.tokenizer, request.thinking, opened_.config.eos, new_tokens);
  request.sampling = sampling_of(engine, sample.generation);
  return request;
}

}  // namespace kvarena::evaluate
