#include "harness/evaluate/chat_endpoint.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::evaluate {
namespace {

using nlohmann::json;

constexpr double kMillion = 1e6;
constexpr int64_t kMostTokens = int64_t{1} << 40;  // of an answer: what endpoints report is not trusted

/// An answer of the endpoint; with status 0 none came, and `body` says why.
struct Reply {
  long status = 0;
  std::string body;
  std::optional<double> retry_after_s;
};

size_t append(const char* data, size_t size, size_t count, void* target) {
  constexpr size_t kLargest = 16 << 20;
  auto& text = *static_cast<std::string*>(target);
  if (text.size() + size * count > kLargest) return 0;  // curl gives up
  text.append(data, size * count);
  return size * count;
}

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct FreeHandle {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};

void add_header(std::unique_ptr<curl_slist, FreeList>& list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list.get(), line.c_str());
  KVARENA_ASSERT(longer != nullptr, "out of memory");
  (void)list.release();
  list.reset(longer);
}

Reply post(const EndpointSettings& settings, const std::string& body) {
  static const CURLcode kReady = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, FreeHandle> handle(kReady == CURLE_OK ? curl_easy_init() : nullptr);
  KVARENA_ASSERT(handle != nullptr, "libcurl does not start");
  std::unique_ptr<curl_slist, FreeList> headers;
  add_header(headers, "Content-Type: application/json");
  if (!settings.key.empty()) add_header(headers, "Authorization: Bearer " + settings.key);
  Reply reply;
  const std::string url = settings.url + "/chat/completions";
  CURL* curl = handle.get();
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.c_str());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, static_cast<long>(settings.timeout_s));
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply.body);
  const CURLcode code = curl_easy_perform(curl);
  if (code != CURLE_OK) return {.status = 0, .body = curl_easy_strerror(code), .retry_after_s = {}};
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply.status);
  curl_off_t wait = 0;
  if (curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK && wait > 0) {
    reply.retry_after_s = static_cast<double>(wait);
  }
  return reply;
}

bool is_worth_repeating(long status) { return status == 0 || status == 408 || status == 429 || status >= 500; }

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

/// The endpoint's address without the password in it.
std::string shown_url(const std::string& url) {
  const size_t host = url.find("//");
  const size_t at = url.find('@');
  if (host == std::string::npos || at == std::string::npos || at > url.find('/', host + 2)) return url;
  return url.substr(0, host + 2) + url.substr(at + 1);
}

/// Shortens the endpoint's words for a message, blanks the key should they echo it, and takes away what terminals obey.
std::string excerpt(std::string text, const std::string& key) {
  for (size_t at = key.empty() ? std::string::npos : text.find(key); at != std::string::npos; at = text.find(key)) {
    text.replace(at, key.size(), "(key)");
  }
  std::ranges::replace_if(text, is_control, ' ');
  for (size_t at = text.find('\xc2'); at != std::string::npos; at = text.find('\xc2', at + 1)) {
    const unsigned char next = at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : 0;
    if (next >= 0x80 && next < 0xa0) text.replace(at, 2, " ");  // U+0080 to U+009F are controls too
  }
  return text.substr(0, 200);
}

std::string words_of(const EndpointSettings& settings, const Reply& reply) {
  const std::string text = excerpt(reply.body, settings.key);
  return reply.status == 0 ? text : fmt::format("HTTP {}: {}", reply.status, text);
}

[[noreturn]] void give_up(const EndpointSettings& settings, const Reply& reply, int64_t tries) {
  const bool patient = reply.retry_after_s.value_or(0) <= settings.longest_wait_s;
  fail({.place = shown_url(settings.url),
        .found =
            fmt::format("{}{}{}", words_of(settings, reply), tries > 1 ? fmt::format(" (after {} tries)", tries) : "",
                        patient ? "" : fmt::format("; it asks to wait {} s", *reply.retry_after_s)),
        .expected = "an answer of an OpenAI-compatible endpoint",
        .action = reply.status == 401 || reply.status == 403 ? "check KVARENA_JUDGE_KEY" : ""});
}

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
  return json{{"model", settings.model},
              {"messages", std::move(messages)},
              {"temperature", settings.temperature},
              {"max_tokens", settings.max_tokens}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
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
  if (std::ranges::any_of(settings_.key, is_control)) {
    fail({.place = "KVARENA_JUDGE_KEY",
          .found = "a line end or another control character",
          .expected = "the key alone, as a header holds it"});
  }
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
  double wait_s = settings_.first_wait_s;
  for (int64_t attempt = 1;; ++attempt) {
    const Reply reply = post(settings_, request);
    if (reply.status == 200) {
      const auto answer = read_answer(reply.body);
      if (!answer) give_up(settings_, reply, attempt);
      ++use_.answers;
      use_.prompt_tokens += answer->prompt_tokens;
      use_.answer_tokens += answer->answer_tokens;
      use_.cost += (static_cast<double>(answer->prompt_tokens) * settings_.price_in +
                    static_cast<double>(answer->answer_tokens) * settings_.price_out) /
                   kMillion;
      if (!file.empty()) {
        write_file(file, json{{"model", settings_.model}, {"answer", answer->text}}.dump(
                             -1, ' ', false, json::error_handler_t::replace));
      }
      return answer->text;
    }
    const double pause_s = reply.retry_after_s.value_or(wait_s);
    const bool again = is_worth_repeating(reply.status) && attempt < settings_.tries;
    if (!again || pause_s > std::max(settings_.longest_wait_s, wait_s)) give_up(settings_, reply, attempt);
    ++use_.retries;
    if (settings_.on_retry) {
      settings_.on_retry(fmt::format("{}: {}; try {} of {} in {} s", shown_url(settings_.url),
                                     words_of(settings_, reply), attempt + 1, settings_.tries, pause_s));
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
    wait_s *= 2;
  }
}

}  // namespace kvarena::evaluate
