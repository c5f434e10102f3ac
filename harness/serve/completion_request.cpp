#include "harness/serve/completion_request.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "harness/serve/api_error.h"

namespace kvarena::serve {
namespace {

using Json = nlohmann::ordered_json;  // tools are shown to the model in the client's order

constexpr int64_t kMostLikeliest = 20;
constexpr size_t kMostStops = 16;
constexpr size_t kMostPrompts = 1024;

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = fmt::format("{}...", text.substr(0, 57));
  return text;
}

/// The fields of a body, each of which is asked for once; what nobody asked for is refused at the end.
class Fields {
 public:
  explicit Fields(const std::string& body) {
    try {
      require_shallow(body, "body");
      object_ = Json::parse(body);
    } catch (const UserError& error) {
      throw ApiError(400, error.what());
    } catch (const Json::parse_error& error) {
      throw ApiError(400, describe({.place = fmt::format("body, byte {}", error.byte),
                                    .found = "what is no JSON",
                                    .expected = "a JSON object"}));
    }
    if (!object_.is_object())
      throw ApiError(400, describe({.place = "body", .found = shown(object_), .expected = "a JSON object"}));
  }

  /// The field's value, null where it is absent or null.
  const Json* find(const std::string& name) {
    asked_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  std::string text(const std::string& name) {
    const Json* value = find(name);
    if (value == nullptr) refuse(name, "nothing", "a string");
    if (!value->is_string()) refuse(name, shown(*value), "a string");
    return value->get<std::string>();
  }

  bool flag(const std::string& name) {
    const Json* value = find(name);
    if (value != nullptr && !value->is_boolean()) refuse(name, shown(*value), "true or false");
    return value != nullptr && value->get<bool>();
  }

  std::optional<int64_t> integer(const std::string& name, int64_t least, int64_t most) {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= static_cast<uint64_t>(most)
                                                  : value->is_number_integer() && value->get<int64_t>() <= most;
    if (!fits || value->get<int64_t>() < least) {
      refuse(name, shown(*value), fmt::format("an integer from {} to {}", least, most));
    }
    return value->get<int64_t>();
  }

  std::optional<double> number(const std::string& name) {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) refuse(name, shown(*value), "a number");
    return value->get<double>();
  }

  /// Obeys nothing that the field could ask for but `harmless`.
  void only(const std::string& name, std::initializer_list<Json> harmless) {
    const Json* value = find(name);
    if (value == nullptr) return;
    for (const Json& allowed : harmless) {
      if (*value == allowed) return;
    }
    std::vector<std::string> texts;
    for (const Json& allowed : harmless) texts.push_back(allowed.dump());
    refuse(name, shown(*value), fmt::format("{}; nothing else is supported", fmt::join(texts, " or ")));
  }

  void ignore(std::initializer_list<const char*> names) { asked_.insert(names.begin(), names.end()); }

  void end() const {
    const std::vector<std::string> known(asked_.begin(), asked_.end());
    for (const auto& [name, value] : object_.items()) {
      if (asked_.contains(name)) continue;
      throw ApiError(
          400, describe({.place = name, .found = "a field that is not known", .nearest = nearest_name(name, known)}),
          name);
    }
  }

 private:
  Json object_;
  std::set<std::string> asked_;
};

std::vector<int32_t> token_ids(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
    if (!fits) refuse("prompt", shown(id), "token ids from 0 on");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

/// Reads a string, token ids, or a list of either.
std::vector<Prompt> prompts_of(Fields& fields) {
  const Json* value = fields.find("prompt");
  if (value == nullptr) refuse("prompt", "nothing", "a string, token ids, or a list of either");
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array() || value->empty()) refuse("prompt", shown(*value), "a string, token ids, or a list of either");
  if (value->front().is_number()) return {token_ids(*value)};
  if (value->size() > kMostPrompts) {
    refuse("prompt", fmt::format("{} prompts", value->size()), fmt::format("at most {}", kMostPrompts));
  }
  std::vector<Prompt> prompts;
  for (const Json& one : *value) {
    if (one.is_string()) {
      prompts.emplace_back(one.get<std::string>());
    } else if (one.is_array() && !one.empty()) {
      prompts.emplace_back(token_ids(one));
    } else {
      refuse("prompt", shown(one), "a string or token ids");
    }
  }
  return prompts;
}

std::vector<std::string> stops_of(Fields& fields) {
  const Json* value = fields.find("stop");
  if (value == nullptr) return {};
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > kMostStops) {
    refuse("stop", fmt::format("{} strings", list.size()), fmt::format("at most {}", kMostStops));
  }
  std::vector<std::string> stops;
  for (const Json& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty()) {
      refuse("stop", shown(stop), "a string that is not empty, or a list of them");
    }
    stops.push_back(stop.get<std::string>());
  }
  return stops;
}

SamplingSettings sampling_of(Fields& fields) {
  SamplingSettings sampling;
  sampling.temperature = fields.number("temperature").value_or(0);
  if (!(sampling.temperature >= 0 && sampling.temperature <= 100)) {
    refuse("temperature", fmt::format("{}", sampling.temperature), "a number from 0 (greedy) to 100");
  }
  sampling.top_p = fields.number("top_p").value_or(1);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    refuse("top_p", fmt::format("{}", sampling.top_p), "above 0 and at most 1");
  }
  sampling.top_k = fields.integer("top_k", 0, std::numeric_limits<int32_t>::max()).value_or(0);
  const auto most = std::numeric_limits<int64_t>::max();
  sampling.seed = static_cast<uint64_t>(fields.integer("seed", 0, most).value_or(0));
  return sampling;
}

bool stream_usage_of(Fields& fields, bool stream) {
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return false;
  if (!options->is_object() || !stream) refuse("stream_options", shown(*options), "an object, beside \"stream\": true");
  const auto usage = options->find("include_usage");
  if (usage != options->end() && !usage->is_boolean())
    refuse("stream_options", shown(*options), "\"include_usage\": true or false");
  return usage != options->end() && usage->get<bool>();
}

void read_common(Fields& fields, CompletionRequest& request) {
  request.model = fields.text("model");
  request.sampling = sampling_of(fields);
  request.stop = stops_of(fields);
  request.stream = fields.flag("stream");
  request.stream_usage = stream_usage_of(fields, request.stream);
  request.ignore_end = fields.flag("ignore_eos");
  request.token_ids = fields.flag("return_token_ids");
  request.named_by_id = fields.flag("return_tokens_as_token_ids");
  request.context_tokens = fields.integer("context_tokens", 1, std::numeric_limits<int32_t>::max());
  fields.only("n", {1});
  fields.only("presence_penalty", {0});
  fields.only("frequency_penalty", {0});
  fields.only("logit_bias", {Json::object()});
  fields.ignore({"user", "metadata", "store", "service_tier"});
}

std::optional<int64_t> most_tokens(Fields& fields, const std::string& name, int64_t least) {
  return fields.integer(name, least, std::numeric_limits<int32_t>::max());
}

/// A message's text: a string, or parts of it.
std::string content_of(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) refuse("messages", shown(content), "content that is a string or a list of texts");
  for (const Json& part : content) {
    const bool is_text =
        part.is_object() && part.value("type", Json()) == "text" && part.contains("text") && part["text"].is_string();
    if (!is_text) refuse("messages", shown(part), R"({"type": "text", "text": ...}: models here read text alone)");
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

/// Calls as templates read them: arguments as an object, where the API has its text.
Json calls_of(Json calls) {
  if (!calls.is_array()) refuse("messages", shown(calls), "a list of tool calls");
  for (Json& call : calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
      refuse("messages", shown(call), R"(a call {"type": "function", "function": {"name": ..., "arguments": ...}})");
    }
    Json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    const auto& text = function["arguments"].get_ref<const std::string&>();
    Json parsed = nests_deeply(text) ? Json(Json::value_t::discarded) : Json::parse(text, nullptr, false);
    if (parsed.is_object()) function["arguments"] = std::move(parsed);
  }
  return calls;
}

Json message_of(const Json& sent) {
  const bool speaks = sent.is_object() && sent.contains("role") && sent["role"].is_string();
  if (!speaks) refuse("messages", shown(sent), R"({"role": ..., "content": ...})");
  Json message = sent;
  const bool calls = message.contains("tool_calls") && !message["tool_calls"].is_null();
  if (calls) message["tool_calls"] = calls_of(message["tool_calls"]);
  const bool silent = !message.contains("content") || message["content"].is_null();
  if (silent && !calls) refuse("messages", shown(sent), "a message with content");
  message["content"] = silent ? "" : content_of(message["content"]);
  return message;
}

Conversation conversation_of(Fields& fields) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    refuse("messages", messages == nullptr ? "nothing" : shown(*messages), "a list of at least one message");
  }
  Json list = Json::array();
  for (const Json& message : *messages) list.push_back(message_of(message));
  const auto value_of = [](const Json& json) { return jinja::Value::of_json(json_text(json)); };
  Conversation conversation{.messages = value_of(list), .tools = {}};
  const Json* tools = fields.find("tools");
  if (tools != nullptr && !tools->is_array()) refuse("tools", shown(*tools), "a list");
  const Json* choice = fields.find("tool_choice");
  const bool unwanted = choice != nullptr && *choice == "none";
  fields.only("tool_choice", {"auto", "none"});
  if (tools != nullptr && !tools->empty() && !unwanted) conversation.tools = value_of(*tools);
  return conversation;
}

}  // namespace

CompletionRequest parse_completion(const std::string& body) {
  Fields fields(body);
  CompletionRequest request;
  read_common(fields, request);
  request.prompts = prompts_of(fields);
  request.echo = fields.flag("echo");
  request.logprobs = fields.integer("logprobs", 0, kMostLikeliest);
  request.max_tokens = most_tokens(fields, "max_tokens", request.echo ? 0 : 1);
  fields.only("best_of", {1});
  fields.only("suffix", {""});
  fields.end();
  if (request.stream && request.prompts.size() > 1) {
    refuse("stream", fmt::format("true beside {} prompts", request.prompts.size()),
           "one prompt where the answer is streamed");
  }
  return request;
}

CompletionRequest parse_chat(const std::string& body) {
  Fields fields(body);
  CompletionRequest request;
  read_common(fields, request);
  request.conversation = conversation_of(fields);
  const bool wanted = fields.flag("logprobs");
  const auto likeliest = fields.integer("top_logprobs", 0, kMostLikeliest);
  if (likeliest && !wanted) refuse("top_logprobs", fmt::format("{}", *likeliest), "\"logprobs\": true beside it");
  if (wanted) request.logprobs = likeliest.value_or(0);
  const auto older = most_tokens(fields, "max_tokens", 1);
  const auto newer = most_tokens(fields, "max_completion_tokens", 1);
  request.max_tokens = newer ? newer : older;
  fields.only("response_format", {Json{{"type", "text"}}});
  fields.only("parallel_tool_calls", {true, false});
  fields.end();
  return request;
}

}  // namespace kvarena::serve
