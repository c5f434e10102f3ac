#include "harness/serve/request_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "harness/core/error.h"
#include "harness/engine/reuse/rendered_results.h"
#include "harness/method/reuser.h"
#include "harness/method/tool_results.h"
#include "harness/model/tokenizer/token_ranges.h"
#include "harness/serve/answer_text.h"
#include "harness/serve/api_error.h"

namespace kvarena::serve {
namespace {

constexpr int64_t kUnaskedTokens = 16;  // of a completion, as in the API that this one follows

std::vector<int32_t> ids_of(const Prompt& prompt, const ModelText& text) {
  if (const auto* written = std::get_if<std::string>(&prompt)) return text.tokenizer.encode(*written);
  const auto& ids = std::get<std::vector<int32_t>>(prompt);
  const auto wrong = std::ranges::find_if(ids, [&](int32_t id) { return id >= text.vocab_size; });
  if (wrong != ids.end()) {
    refuse("prompt", fmt::format("token id {}", *wrong), fmt::format("ids from 0 to {}", text.vocab_size - 1));
  }
  return ids;
}

std::string written(const Conversation& conversation, const ModelText& text) {
  try {
    const ChatTemplate chat =
        conversation.tools ? text.chat_template.with({{"tools", *conversation.tools}}) : text.chat_template;
    return chat.render(conversation.messages, /*add_generation_prompt=*/true);
  } catch (const UserError& error) {
    throw ApiError(400, error.what(), "messages");
  }
}

bool scores_prompt(const CompletionRequest& request) { return request.echo && request.logprobs; }

/// Whether the method keeps every entry as it is.
bool keeps_everything(const ServedModel& model) { return model.method_json.empty(); }

int64_t context_of(const CompletionRequest& request, const ServedModel& model, int64_t tokens) {
  const bool scored = scores_prompt(request);
  const int64_t most = scored ? tokens - 1 : tokens;
  if (scored && tokens < 2) refuse("prompt", fmt::format("{} token", tokens), "at least two, where they are scored");
  if (request.context_tokens && *request.context_tokens > most) {
    refuse("context_tokens", fmt::format("{}", *request.context_tokens),
           fmt::format("at most {} of a prompt of {} tokens", most, tokens));
  }
  // Bits are equal however it is divided; scores come fastest of the whole, bytes are those of the context.
  if (keeps_everything(model)) return scored ? most : request.context_tokens.value_or(most);
  return request.context_tokens.value_or(scored ? tokens / 2 : tokens);
}

PlannedPrompt plan(const CompletionRequest& request, const ServedModel& model, const ModelText& text,
                   const RequestLimits& limits, std::vector<int32_t> tokens) {
  PlannedPrompt planned{.tokens = std::move(tokens), .text = ""};
  const auto n = static_cast<int64_t>(planned.tokens.size());
  if (n == 0) refuse("prompt", "no token", "at least one");
  planned.context = context_of(request, model, n);
  const int64_t unasked = request.conversation ? std::clamp<int64_t>(text.window - n, 1, limits.max_tokens)
                                               : std::min(kUnaskedTokens, limits.max_tokens);
  planned.max_tokens = request.max_tokens.value_or(unasked);
  if (planned.max_tokens > limits.max_tokens) {
    refuse("max_tokens", fmt::format("{}", planned.max_tokens),
           fmt::format("at most {}, this server's limit", limits.max_tokens));
  }
  if (n + planned.max_tokens > text.window) {
    refuse(request.conversation ? "messages" : "prompt",
           fmt::format("{} tokens, and up to {} of the answer", n, planned.max_tokens),
           fmt::format("at most {} together, the model's window", text.window));
  }
  return planned;
}

/// Ends a session at the first stop string of the answer, behind what was forced.
std::function<bool(std::span<const int32_t>)> stop_at(const Tokenizer& tokenizer, std::vector<std::string> stops,
                                                      size_t forced) {
  auto answer = std::make_shared<AnswerText>(tokenizer, std::move(stops));
  return [answer, seen = forced](std::span<const int32_t> tokens) mutable {
    for (; seen < tokens.size(); ++seen) (void)answer->push(tokens[seen]);
    return answer->stopped();
  };
}

/// A member of a JSON object that is a text; empty where it is none.
std::string text_of(const jinja::Value& object, const char* name) {
  const jinja::Value* member = object.find(name);
  return member != nullptr && member->text() != nullptr ? *member->text() : "";
}

/// Names of called functions by the ids of an answer's calls.
void add_names(std::map<std::string, std::string>& names, const jinja::Value& message) {
  const jinja::Value* calls = message.find("tool_calls");
  if (calls == nullptr || calls->list() == nullptr) return;
  for (const jinja::Value& call : *calls->list()) {
    const jinja::Value* function = call.find("function");
    if (function != nullptr) names[text_of(call, "id")] = text_of(*function, "name");
  }
}

/// Results of tools in a chat as the template writes it, as far as it leaves the messages' contents whole.
std::vector<RenderedResult> results_in(const Conversation& conversation, const std::string& text) {
  std::vector<RenderedResult> results;
  std::map<std::string, std::string> names;
  size_t begin = 0;
  for (const jinja::Value& message : *conversation.messages.list()) {
    add_names(names, message);
    const std::string said = text_of(message, "content");
    if (said.empty()) continue;  // none, or parts of several kinds
    const std::optional<RenderedContent> content = find_content(text, said, begin);
    if (!content) break;
    begin = content->end();
    if (text_of(message, "role") != "tool") continue;
    const std::string name = text_of(message, "name"), id = text_of(message, "tool_call_id");
    results.push_back(
        {{static_cast<int64_t>(content->begin), static_cast<int64_t>(begin)}, name.empty() ? names[id] : name});
  }
  return results;
}

/// Parts of the prompt that its method goes by: the context's text where another checkpoint reads it, and results.
PromptLayout layout_of(const CompletionRequest& request, const PlannedPrompt& prompt, const ServedModel& model,
                       const ModelText& text) {
  const Reuser* reuser = model.method->reuser();
  const auto speculative = reuser == nullptr ? std::nullopt : reuser->speculative();
  const bool reads_text = speculative && !speculative->path.empty();
  const bool reads_results =
      request.conversation && dynamic_cast<const ReadsToolResults*>(model.method.get()) != nullptr;
  PromptLayout layout;
  if (!reads_text && !reads_results) return layout;
  layout.ranges = token_ranges(text.tokenizer, prompt.tokens, prompt.text);
  if (reads_results) {
    add_results(layout.results, results_in(*request.conversation, prompt.text), prompt.text, 0, layout.ranges, 0);
  }
  layout.ranges.resize(static_cast<size_t>(prompt.context));
  layout.text = prompt.text.substr(0, static_cast<size_t>(layout.ranges.back().end));
  return layout;
}

}  // namespace

std::vector<PlannedPrompt> plan_prompts(const CompletionRequest& request, const ServedModel& model,
                                        const ModelText& text, const RequestLimits& limits) {
  if (scores_prompt(request) && model.method->reuser() != nullptr) {
    refuse("echo", "true beside \"logprobs\"",
           fmt::format("a method that reads prompts: {} takes entries of earlier ones", model.name));
  }
  if (request.conversation) {
    std::string rendered = written(*request.conversation, text);
    PlannedPrompt planned = plan(request, model, text, limits, text.tokenizer.encode(rendered, {.add_special = false}));
    planned.text = std::move(rendered);
    return {std::move(planned)};
  }
  std::vector<PlannedPrompt> prompts;
  for (const Prompt& sent : request.prompts) {
    PlannedPrompt& planned = prompts.emplace_back(plan(request, model, text, limits, ids_of(sent, text)));
    const auto* written = std::get_if<std::string>(&sent);
    planned.text = written != nullptr ? *written : text.tokenizer.decode(planned.tokens);
  }
  return prompts;
}

LiveRequest live_request(const CompletionRequest& request, const PlannedPrompt& prompt, const ServedModel& model,
                         const ModelText& text) {
  LiveRequest live{.model = model.name, .logprobs = request.logprobs, .scores_prompt = scores_prompt(request)};
  ServedRequest& served = live.served;
  const auto behind = prompt.tokens.begin() + prompt.context;
  served.prompt.assign(prompt.tokens.begin(), behind);
  served.method = model.method.get();
  served.layout = layout_of(request, prompt, model, text);
  served.memory = model.memory;
  SessionOptions& options = served.options;
  options.results = served.layout.results;
  options.sampling = request.sampling;
  options.tokenizer = &text.tokenizer;
  // An engine's answer has a token at least; one that nobody asked for is left out of the text.
  options.stop.max_new_tokens = std::max<int64_t>(1, prompt.max_tokens);
  if (!request.ignore_end) options.stop.stop_tokens = text.stop_tokens;
  size_t forced = 0;
  if (live.scores_prompt) {
    options.forced = std::vector<int32_t>(behind, prompt.tokens.end());
    options.after_forced = prompt.max_tokens;
    forced = options.forced->size();
  } else {
    options.question.assign(behind, prompt.tokens.end());
  }
  if (!request.stop.empty()) options.stop.stop_when = stop_at(text.tokenizer, request.stop, forced);
  return live;
}

}  // namespace kvarena::serve
