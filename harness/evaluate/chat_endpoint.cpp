#include "harness/evaluate/chat_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"

namespace kvarena::evaluate {
namespace {

using nlohmann::json;

constexpr const char* kKeyName = "KVARENA_JUDGE_KEY";
constexpr double kMillion = 1e6;
constexpr int64_t kMostTokens = int64_t{1} << 40;  // of an answer: what endpoints report is not trusted

struct Answer {
  std::string text;
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;
};

std::optional<Answer> read_answer(const std::string& body) {
  const json reply = json::parse(body, nullptr, false);
  const json::json_pointer content("/choices/0/message/content");
  if (!reply.is_object() || !reply.contains(content) || !reply.at(content).is_string()) return std::nullopt;
  const json usage = reply.value("usage", json::object());
  const auto count = [&](const char* name) {
    const bool there = usage.is_object() && usage.contains(name) && usage.at(name).is_number_integer();
    return there ? std::clamp<int64_t>(usage.at(name).get<int64_t>(), 0, kMostTokens) : 0;
  };
  return Answer{.text = reply.at(content).get<std::string>(),
                .prompt_tokens = count("prompt_tokens"),
                .answer_tokens = count("completion_tokens")};
}

/// The file of a cached answer, named by the hash of everything that decides the answer.
std::filesystem::path cache_file(const EndpointSettings& settings, const std::string& request, int64_t draw) {
  if (settings.cache.empty()) return {};
  return settings.cache / (sha256(fmt::format("{}\n{}\n{}", settings.url, draw, request)) + ".json");
}

std::optional<std::string> cached_answer(const std::filesystem::path& file) {
  if (file.empty() || !std::filesystem::exists(file)) return std::nullopt;
  const json stored = json::parse(read_file(file), nullptr, false);
  if (!stored.is_object() || !stored.contains("answer") || !stored["answer"].is_string()) return std::nullopt;
  return stored["answer"].get<std::string>();
}

std::string request_json(const EndpointSettings& settings, const std::string& prompt) {
  json messages = json::array();
  if (!settings.system.empty()) messages.push_back({{"role", "system"}, {"content", settings.system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return json_text(json{{"model", settings.model},
                        {"messages", std::move(messages)},
                        {"temperature", settings.temperature},
                        {"max_tokens", settings.max_tokens}});
}

}  // namespace

EndpointUse& EndpointUse::operator+=(const EndpointUse& other) {
  answers += other.answers;
  cached += other.cached;
  retries += other.retries;
  prompt_tokens += other.prompt_tokens;
  answer_tokens += other.answer_tokens;
  cost += other.cost;
  return *this;
}

ChatEndpoint::ChatEndpoint(EndpointSettings settings) : settings_(std::move(settings)) {
  if (settings_.url.empty()) fail({.place = "the judge's address", .found = "nothing", .expected = "a URL"});
  require_key_of_header(settings_.key, kKeyName);
  while (settings_.url.ends_with('/')) settings_.url.pop_back();
  if (!settings_.cache.empty()) std::filesystem::create_directories(settings_.cache);
}

std::string ChatEndpoint::ask(const std::string& prompt, int64_t draw) {
  const std::string request = request_json(settings_, prompt);
  const std::filesystem::path file = cache_file(settings_, request, draw);
  if (auto known = cached_answer(file)) {
    ++use_.answers;
    ++use_.cached;
    return *known;
  }
  const std::string expected = "an answer of an OpenAI-compatible endpoint";
  const HttpReply reply = exchange_patiently({.url = settings_.url + "/chat/completions",
                                              .key = settings_.key,
                                              .body = request,
                                              .timeout_s = settings_.timeout_s,
                                              .on_data = {}},
                                             settings_.patience, use_.retries, expected, kKeyName);
  const auto answer = read_answer(reply.body);
  if (!answer) {
    fail({.place = shown_url(settings_.url),
          .found = fmt::format("HTTP 200: {}", shown_words(reply.body, settings_.key)),
          .expected = expected});
  }
  ++use_.answers;
  use_.prompt_tokens += answer->prompt_tokens;
  use_.answer_tokens += answer->answer_tokens;
  use_.cost += (static_cast<double>(answer->prompt_tokens) * settings_.price_in +
                static_cast<double>(answer->answer_tokens) * settings_.price_out) /
               kMillion;
  if (!file.empty()) {
    write_file(file, json_text(json{{"model", settings_.model}, {"answer", answer->text}}));
  }
  return answer->text;
}

}  // namespace kvarena::evaluate
