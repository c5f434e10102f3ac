#include "harness/evaluate/completion_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "harness/evaluate/completion_form.h"

namespace kvarena::evaluate {
namespace {

using nlohmann::json;

constexpr int64_t kMostTokens = int64_t{1} << 40;

std::optional<int64_t> count_of(const json& object, const char* name) {
  const json value = member(object, name);
  if (!value.is_number_integer()) return std::nullopt;
  return std::clamp<int64_t>(value.get<int64_t>(), 0, kMostTokens);
}

std::string key_in(const std::string& variable) {
  if (variable.empty()) return "";
  const char* key = std::getenv(variable.c_str());
  if (key != nullptr && *key != '\0') return key;
  fail({.place = fmt::format("environment variable {}", variable), .found = "nothing", .expected = "the server's key"});
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
  if (settings_.engine == "vllm" || settings_.engine == "kvarena") version_ = told("/version", "version");
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

json CompletionEndpoint::ask(const std::string& path, const json& body, int64_t& retries) const {
  if (settings_.pace) settings_.pace->wait();
  HttpRequest asked = request(path);
  asked.body = json_text(body);
  const HttpReply reply = exchange_patiently(asked, settings_.patience, retries, kAnswer, settings_.key_variable);
  json parsed = json::parse(reply.body, nullptr, false);
  const json model = member(parsed, "model");
  const bool names_it = path.starts_with("/v1/") || model.is_string();  // engines' own forms may not
  if (names_it) require_model(reply.body, model.is_string() ? model.get<std::string>() : "");
  return parsed;
}

CompletionAnswer CompletionEndpoint::complete(const CompletionQuery& query) const {
  CompletionAnswer answer;
  const json reply = ask(path_of(query), completion_body(query, settings_), answer.retries);
  read_usage(reply, answer);
  int64_t tokens = 0;
  if (read_choice(first_choice(reply), answer, tokens)) return answer;
  fail({.place = shown_url(settings_.url), .found = shown_words(json_text(reply), key_), .expected = kAnswer});
}

CompletionAnswer CompletionEndpoint::stream(const CompletionQuery& query) const {
  json body = completion_body(query, settings_);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  HttpRequest asked = request(path_of(query));
  asked.body = json_text(body);
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

json CompletionEndpoint::post(const std::string& path, const json& body) const {
  HttpRequest asked = request(path);
  asked.body = json_text(body);
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
