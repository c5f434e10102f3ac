#include "harness/evaluate/completion_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"

namespace kvarena::evaluate {
namespace {

using nlohmann::json;

constexpr const char* kAnswer = "a completion of an OpenAI-compatible server";
constexpr int64_t kLikeliest = 20;  // tokens named for a step; servers refuse more
constexpr int64_t kWholeVocabulary = 1 << 20;
constexpr int64_t kMostTokens = int64_t{1} << 40;

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

/// The member of an object, null where it has none or is none.
json member(const json& object, const char* name) { return object.is_object() ? object.value(name, json()) : json(); }

std::optional<int64_t> count_of(const json& object, const char* name) {
  const json value = member(object, name);
  if (!value.is_number_integer()) return std::nullopt;
  return std::clamp<int64_t>(value.get<int64_t>(), 0, kMostTokens);
}

/// A word that no request had before.
std::string new_salt() {
  static std::atomic<int64_t> asked = 0;
  return fmt::format("{:x}-{}", std::chrono::system_clock::now().time_since_epoch().count(), ++asked);
}

std::string key_in(const std::string& variable) {
  if (variable.empty()) return "";
  const char* key = std::getenv(variable.c_str());
  if (key != nullptr && *key != '\0') return key;
  fail({.place = fmt::format("environment variable {}", variable), .found = "nothing", .expected = "the server's key"});
}

/// The name of tokens in lists of the likeliest ones, as vLLM writes it: texts of tokens may be alike.
std::string named(int64_t id) { return fmt::format("token_id:{}", id); }

/// Members of a request that are written alike for all kinds of answers.
json body_of(const CompletionQuery& query, const ServerSettings& settings) {
  const std::string& engine = settings.engine;
  json body = {
      {"model", settings.model}, {"max_tokens", query.max_tokens}, {"temperature", query.sampling.temperature}};
  if (!query.tokens.empty()) {
    body["prompt"] = query.tokens;
  } else if (query.messages.empty()) {
    body["prompt"] = query.text;
  } else {
    for (const auto& [role, content] : query.messages)
      body["messages"].push_back({{"role", role}, {"content", content}});
  }
  if (!query.sampling.greedy()) {
    body["top_p"] = query.sampling.top_p;
    body["seed"] = query.sampling.seed;
    if (engine == "llama.cpp") body.update({{"top_k", 0}, {"min_p", 0}});
  }
  std::vector<std::string> stop = query.stop;
  const bool takes_ids = engine == "vllm" || engine == "sglang";
  if (query.stop_token && takes_ids) body["stop_token_ids"] = {*query.stop_token};
  if (query.stop_token && !takes_ids) stop.push_back(query.stop_text);
  if (!stop.empty()) body["stop"] = stop;
  if (query.ignore_end) body["ignore_eos"] = true;
  if (engine == "vllm" || engine == "kvarena") body["return_token_ids"] = true;
  if (engine == "kvarena" && query.context_tokens > 0) body["context_tokens"] = query.context_tokens;
  if (engine == "llama.cpp") body["cache_prompt"] = !query.shares.empty();
  const bool salts = engine == "vllm" || engine == "sglang";
  if (salts && query.fresh) body["cache_salt"] = new_salt();
  if (salts && !query.shares.empty()) body["cache_salt"] = query.shares;
  return body;
}

const char* path_of(const CompletionQuery& query) {
  return query.messages.empty() ? "/v1/completions" : "/v1/chat/completions";
}

void read_usage(const json& reply, CompletionAnswer& answer) {
  const json usage = member(reply, "usage");
  if (!usage.is_object()) return;
  answer.prompt_tokens = count_of(usage, "prompt_tokens");
  answer.answer_tokens = count_of(usage, "completion_tokens");
  answer.cached_tokens = count_of(member(usage, "prompt_tokens_details"), "cached_tokens").value_or(0);
  answer.resident_bytes = count_of(member(usage, "kvarena"), "resident_bytes");
}

/// Adds a choice of an answer, or of a piece of one; says whether it ends there. Throws UserError for another ending
/// than a stop or the answer's length.
bool read_choice(const json& choice, CompletionAnswer& answer, int64_t& tokens) {
  json text = member(choice, "text");
  for (const char* in : {"message", "delta"}) {
    if (text.is_null()) text = member(member(choice, in), "content");
  }
  if (text.is_string()) answer.text += text.get<std::string>();
  tokens = text.is_string() && !text.get_ref<const std::string&>().empty() ? 1 : 0;
  if (const json ids = member(choice, "token_ids"); ids.is_array()) {
    if (!answer.token_ids) answer.token_ids.emplace();
    for (const json& id : ids) answer.token_ids->push_back(id.get<int32_t>());
    tokens = std::ssize(ids);
  }
  const json finish = member(choice, "finish_reason");
  if (!finish.is_string()) return false;
  const auto& reason = finish.get_ref<const std::string&>();
  answer.stopped = reason == "stop";
  if (answer.stopped || reason == "length") return true;
  fail({.found = fmt::format("an answer that ended by \"{}\"", reason), .expected = "by \"stop\" or \"length\""});
}

json first_choice(const json& reply) {
  const json choices = member(reply, "choices");
  return choices.is_array() && !choices.empty() ? choices.front() : json();
}

/// Server-sent events out of a body that comes in pieces, and the answer out of them.
class StreamReader {
 public:
  using Clock = std::chrono::steady_clock;

  void take(std::string_view data) {
    pending_ += data;
    for (size_t end = 0; (end = pending_.find('\n')) != std::string::npos; pending_.erase(0, end + 1)) {
      line(std::string_view(pending_).substr(0, end));
    }
  }
  /// Throws UserError where the stream was none, or ended before the answer did.
  CompletionAnswer finish() && {
    if (failure_.empty() && !ended_) failure_ = "a stream that ended before its answer";
    if (!failure_.empty()) fail({.found = failure_, .expected = kAnswer});
    return std::move(answer_);
  }
  [[nodiscard]] const std::string& model_reply() const { return first_; }

 private:
  void line(std::string_view text) {
    constexpr std::string_view kData = "data:";
    if (!text.starts_with(kData) || !failure_.empty()) return;
    const std::string_view data = text.substr(std::min(text.size(), text.find_first_not_of(' ', kData.size())));
    if (data.starts_with("[DONE]")) return;
    const json event = json::parse(data, nullptr, false);
    if (event.is_discarded() || event.contains("error")) {
      failure_ = fmt::format("the event {}", shown_words(std::string(data), ""));
      return;
    }
    if (first_.empty()) first_ = data;
    read_usage(event, answer_);
    int64_t tokens = 0;
    try {
      if (const json choice = first_choice(event); choice.is_object()) ended_ |= read_choice(choice, answer_, tokens);
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
    if (tokens == 0) return;
    answer_.arrivals.push_back(
        {.seconds = std::chrono::duration<double>(Clock::now() - began_).count(), .tokens = tokens});
  }

  Clock::time_point began_ = Clock::now();
  std::string pending_, first_, failure_;
  CompletionAnswer answer_;
  bool ended_ = false;
};

/// The steps that a list of log-probabilities in the form of completions has from token `from` on.
std::vector<metrics::NamedStep> steps_of(const json& reply, size_t from, size_t count) {
  const json scores = member(first_choice(reply), "logprobs");
  const json names = member(scores, "tokens"), values = member(scores, "token_logprobs");
  const json tops = member(scores, "top_logprobs");
  std::vector<metrics::NamedStep> steps;
  for (size_t i = from; i < from + count; ++i) {
    const bool there = names.is_array() && values.is_array() && tops.is_array() && i < names.size() &&
                       i < values.size() && i < tops.size() && names[i].is_string() && values[i].is_number();
    if (!there) {
      fail({.found = fmt::format("no log-probability of token {} of a given text", i),
            .expected = "\"echo\" with \"logprobs\", as vLLM and `kvarena serve` have it"});
    }
    metrics::NamedStep& step = steps.emplace_back();
    step.token = names[i].get<std::string>();
    step.log_probability = values[i].get<double>();
    for (const auto& [token, value] : tops[i].items()) {
      if (value.is_number()) step.likeliest[token] = value.get<double>();
    }
  }
  return steps;
}

/// The likeliest tokens of an answer of one token in llama.cpp's own form, with the log-probability of `wanted`, minus
/// infinity where it is not among them. Nothing where it names none.
std::optional<metrics::NamedStep> native_step(const json& reply, int32_t wanted) {
  const json steps = member(reply, "completion_probabilities");
  const json tops = member(steps.is_array() && !steps.empty() ? steps.front() : json(), "top_logprobs");
  if (!tops.is_array() || tops.empty()) return std::nullopt;
  metrics::NamedStep step{
      .token = named(wanted), .log_probability = -std::numeric_limits<double>::infinity(), .likeliest = {}};
  for (const json& top : tops) {
    const json id = member(top, "id"), value = member(top, "logprob");
    if (!id.is_number_integer() || !value.is_number()) return std::nullopt;
    if (id == wanted) step.log_probability = value.get<double>();
    if (std::ssize(step.likeliest) < kLikeliest) step.likeliest[named(id.get<int64_t>())] = value.get<double>();
  }
  return step;
}

}  // namespace

CompletionEndpoint::CompletionEndpoint(ServerSettings settings)
    : settings_(std::move(settings)), key_(key_in(settings_.key_variable)) {
  require_key_of_header(key_, settings_.key_variable);
  while (settings_.url.ends_with('/')) settings_.url.pop_back();
  if (settings_.url.ends_with("/v1")) settings_.url.resize(settings_.url.size() - 3);
}

HttpRequest CompletionEndpoint::request(const std::string& path) const {
  return {.url = settings_.url + path, .key = key_, .body = "", .timeout_s = settings_.timeout_s, .on_data = {}};
}

long CompletionEndpoint::status_of(const std::string& path) const {
  constexpr int64_t kSeconds = 5;
  HttpRequest asked = request(path);
  asked.timeout_s = kSeconds;
  return exchange(asked).status;
}

bool CompletionEndpoint::answers() const { return status_of("/v1/models") != 0; }

bool CompletionEndpoint::healthy() const {
  const long health = status_of("/health");
  return health == 200 || (health == 404 && status_of("/v1/models") == 200);
}

std::string CompletionEndpoint::get(const std::string& path) const {
  int64_t retries = 0;
  return exchange_patiently(request(path), settings_.patience, retries, "an answer of the server",
                            settings_.key_variable)
      .body;
}

std::string CompletionEndpoint::choose_model() const {
  const std::string body = get("/v1/models");
  std::vector<std::string> names;
  for (const json& model : member(json::parse(body, nullptr, false), "data")) {
    if (const json id = member(model, "id"); id.is_string()) names.push_back(id.get<std::string>());
  }
  const std::string& wanted = settings_.model;
  if (wanted.empty() && names.size() == 1) return names.front();
  if (std::ranges::find(names, wanted) != names.end()) return wanted;
  fail({.place = shown_url(settings_.url),
        .found = names.empty() ? fmt::format("no list of models: {}", shown_words(body, key_))
                               : fmt::format("the models {}", fmt::join(names, ", ")),
        .expected = wanted.empty() ? "one model, or its name as \"model\"" : wanted,
        .nearest = nearest_name(wanted, names)});
}

const std::string& CompletionEndpoint::version() {
  if (!version_.empty()) return version_;
  settings_.model = choose_model();
  const auto told = [&](const char* path, const char* name) {
    const json value = member(json::parse(get(path), nullptr, false), name);
    return fmt::format("{} {}", settings_.engine, value.is_string() ? value.get<std::string>() : "(no version)");
  };
  version_ = settings_.engine;
  if (settings_.engine == "vllm") version_ = told("/version", "version");
  if (settings_.engine == "sglang") version_ = told("/get_server_info", "version");
  if (settings_.engine == "llama.cpp") version_ = told("/props", "build_info");
  return version_;
}

void CompletionEndpoint::require_model(const std::string& body, const std::string& answered) const {
  const bool dated = settings_.engine == "openai" && answered.starts_with(settings_.model);  // a name of its snapshot
  if (answered == settings_.model || dated) return;
  fail({.place = shown_url(settings_.url),
        .found = answered.empty() ? fmt::format("HTTP 200: {}", shown_words(body, key_))
                                  : fmt::format("an answer of the model {}", answered),
        .expected = answered.empty() ? std::string(kAnswer) : settings_.model});
}

CompletionAnswer CompletionEndpoint::complete(const CompletionQuery& query) const {
  HttpRequest asked = request(path_of(query));
  asked.body = dump(body_of(query, settings_));
  CompletionAnswer answer;
  const HttpReply reply =
      exchange_patiently(asked, settings_.patience, answer.retries, kAnswer, settings_.key_variable);
  const json parsed = json::parse(reply.body, nullptr, false);
  const json model = member(parsed, "model");
  require_model(reply.body, model.is_string() ? model.get<std::string>() : "");
  read_usage(parsed, answer);
  int64_t tokens = 0;
  if (read_choice(first_choice(parsed), answer, tokens)) return answer;
  fail({.place = shown_url(settings_.url), .found = shown_words(reply.body, key_), .expected = kAnswer});
}

CompletionAnswer CompletionEndpoint::stream(const CompletionQuery& query) const {
  json body = body_of(query, settings_);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  HttpRequest asked = request(path_of(query));
  asked.body = dump(body);
  StreamReader reader;
  asked.on_data = [&](std::string_view data) { reader.take(data); };
  Patience once = settings_.patience;
  once.tries = 1;
  int64_t retries = 0;
  const HttpReply reply = exchange_patiently(asked, once, retries, kAnswer, settings_.key_variable);
  const json model = member(json::parse(reader.model_reply(), nullptr, false), "model");
  require_model(reply.body, model.is_string() ? model.get<std::string>() : "");
  return std::move(reader).finish();
}

bool CompletionEndpoint::scores_texts() const { return settings_.engine != "openai"; }

json CompletionEndpoint::post(const std::string& path, const json& body) const {
  HttpRequest asked = request(path);
  asked.body = dump(body);
  const HttpReply reply = exchange(asked);
  return reply.status == 200 ? json::parse(reply.body, nullptr, false) : json();
}

CompletionEndpoint::Rendered CompletionEndpoint::render(
    const std::vector<std::pair<std::string, std::string>>& messages) const {
  json body = {{"model", settings_.model}};
  for (const auto& [role, content] : messages) body["messages"].push_back({{"role", role}, {"content", content}});
  if (settings_.engine == "llama.cpp") {
    const json text = member(post("/apply-template", body), "prompt");
    return text.is_string() ? Rendered(text.get<std::string>()) : Rendered();
  }
  if (settings_.engine == "vllm") {
    body["add_generation_prompt"] = true;
    const json tokens = member(post("/tokenize", body), "tokens");
    const bool ids =
        tokens.is_array() && std::ranges::all_of(tokens, [](const json& id) { return id.is_number_integer(); });
    return ids ? Rendered(tokens.get<std::vector<int32_t>>()) : Rendered();
  }
  body["max_tokens"] = 1;
  const auto count = count_of(member(post("/v1/chat/completions", body), "usage"), "prompt_tokens");
  return count ? Rendered(*count) : Rendered();
}

/// Steps of llama.cpp's server, which names the likeliest tokens behind a prompt but scores none: it is asked for one
/// token behind each beginning of the continuation, and keeps the prompt from one request to the next.
std::vector<metrics::NamedStep> CompletionEndpoint::score_by_steps(const CompletionQuery& query,
                                                                   std::span<const int32_t> continuation) const {
  std::vector<int32_t> tokens = query.tokens;
  std::vector<metrics::NamedStep> steps;
  const auto ask = [&](int32_t wanted, int64_t named_tokens) {
    HttpRequest asked = request("/completion");
    asked.body = dump({{"prompt", tokens},
                       {"n_predict", 1},
                       {"n_probs", named_tokens},
                       {"temperature", 0},
                       {"cache_prompt", true},
                       {"model", settings_.model}});
    int64_t retries = 0;
    const HttpReply reply = exchange_patiently(asked, settings_.patience, retries, kAnswer, settings_.key_variable);
    return native_step(json::parse(reply.body, nullptr, false), wanted);
  };
  for (const int32_t token : continuation) {
    auto step = ask(token, kLikeliest);
    if (step && std::isinf(step->log_probability)) step = ask(token, kWholeVocabulary);
    if (!step || std::isinf(step->log_probability)) {
      fail({.place = shown_url(settings_.url),
            .found = fmt::format("no log-probability of token {} of a given text", tokens.size()),
            .expected = "\"completion_probabilities\", as llama.cpp's server has them"});
    }
    steps.push_back(std::move(*step));
    tokens.push_back(token);
  }
  return steps;
}

std::vector<metrics::NamedStep> CompletionEndpoint::score(CompletionQuery query,
                                                          std::span<const int32_t> continuation) const {
  if (settings_.engine == "llama.cpp") return score_by_steps(query, continuation);
  const size_t from = query.tokens.size();
  query.tokens.insert(query.tokens.end(), continuation.begin(), continuation.end());
  query.max_tokens = 0;
  query.stop.clear();
  query.stop_token.reset();
  json body = body_of(query, settings_);
  body.update({{"echo", true}, {"logprobs", kLikeliest}});
  if (settings_.engine != "sglang") body["return_tokens_as_token_ids"] = true;  // texts of tokens may be alike
  HttpRequest asked = request("/v1/completions");
  asked.body = dump(body);
  int64_t retries = 0;
  const HttpReply reply = exchange_patiently(asked, settings_.patience, retries, kAnswer, settings_.key_variable);
  return steps_of(json::parse(reply.body, nullptr, false), from, continuation.size());
}

std::map<std::string, double> CompletionEndpoint::cache_metrics() const {
  const HttpReply reply = exchange(request("/metrics"));
  std::map<std::string, double> values;
  if (reply.status != 200) return values;
  for (size_t begin = 0, end = 0; begin < reply.body.size(); begin = end + 1) {
    end = std::min(reply.body.find('\n', begin), reply.body.size());
    const std::string line = reply.body.substr(begin, end - begin);
    const std::string name = line.substr(0, line.find_first_of("{ "));
    const auto tells = [&](const char* word) { return name.find(word) != std::string::npos; };
    const bool histogram = name.ends_with("_bucket") || name.ends_with("_created");
    if (line.starts_with('#') || histogram) continue;
    if (!tells("cache") && !tells("preempt") && !tells("retract") && !tells("token_usage")) continue;
    const double value = std::atof(line.substr(line.find_last_of(' ') + 1).c_str());
    if (std::isfinite(value)) values[name] += value;
  }
  return values;
}

}  // namespace kvarena::evaluate
