#include "harness/evaluate/http_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "harness/core/error.h"

namespace kvarena::evaluate {
namespace {

/// Where a reply's body goes while it comes.
struct Receiver {
  const HttpRequest& request;
  CURL* curl = nullptr;
  std::string& body;
};

size_t append(const char* data, size_t size, size_t count, void* target) {
  constexpr size_t kLargest = 64 << 20;
  auto& [request, curl, body] = *static_cast<Receiver*>(target);
  if (body.size() + size * count > kLargest) return 0;  // curl gives up
  body.append(data, size * count);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (request.on_data && status == 200) request.on_data({data, size * count});
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

bool is_worth_repeating(long status) { return status == 0 || status == 408 || status == 429 || status >= 500; }

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

std::string words_of(const HttpRequest& request, const HttpReply& reply) {
  const std::string text = shown_words(reply.body, request.key);
  return reply.status == 0 ? text : fmt::format("HTTP {}: {}", reply.status, text);
}

}  // namespace

HttpReply exchange(const HttpRequest& request) {
  static const CURLcode kReady = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, FreeHandle> handle(kReady == CURLE_OK ? curl_easy_init() : nullptr);
  KVARENA_ASSERT(handle != nullptr, "libcurl does not start");
  std::unique_ptr<curl_slist, FreeList> headers;
  add_header(headers, "Content-Type: application/json");
  if (!request.key.empty()) add_header(headers, "Authorization: Bearer " + request.key);
  HttpReply reply;
  CURL* curl = handle.get();
  Receiver receiver{.request = request, .curl = curl, .body = reply.body};
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  if (!request.body.empty()) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.c_str());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, static_cast<long>(request.timeout_s));
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &receiver);
  const CURLcode code = curl_easy_perform(curl);
  if (code != CURLE_OK) {
    const bool late = code == CURLE_OPERATION_TIMEDOUT;
    return {.status = 0, .body = curl_easy_strerror(code), .retry_after_s = {}, .timed_out = late};
  }
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply.status);
  curl_off_t wait = 0;
  if (curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK && wait > 0) {
    reply.retry_after_s = static_cast<double>(wait);
  }
  return reply;
}

std::string shown_url(const std::string& url) {
  const size_t host = url.find("//");
  const size_t at = url.find('@');
  if (host == std::string::npos || at == std::string::npos || at > url.find('/', host + 2)) return url;
  return url.substr(0, host + 2) + url.substr(at + 1);
}

std::string shown_words(std::string text, const std::string& key) {
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

void require_key_of_header(const std::string& key, const std::string& key_name) {
  if (!std::ranges::any_of(key, is_control)) return;
  fail({.place = key_name,
        .found = "a line end or another control character",
        .expected = "the key alone, as a header holds it"});
}

void RequestPace::wait() {
  Clock::time_point turn;
  {
    const std::lock_guard lock(mutex_);
    turn = std::max(next_, Clock::now());
    next_ = turn + apart_;
  }
  std::this_thread::sleep_until(turn);
}

HttpReply exchange_patiently(const HttpRequest& request, const Patience& patience, int64_t& retries,
                             const std::string& expected, const std::string& key_name) {
  const std::string place = shown_url(request.url);
  double wait_s = patience.first_wait_s;
  for (int64_t attempt = 1;; ++attempt) {
    HttpReply reply = exchange(request);
    if (reply.status == 200) return reply;
    const double pause_s = reply.retry_after_s.value_or(wait_s);
    const bool again = is_worth_repeating(reply.status) && attempt < patience.tries;
    if (!again || pause_s > std::max(patience.longest_wait_s, wait_s)) {
      const bool patient = reply.retry_after_s.value_or(0) <= patience.longest_wait_s;
      const bool key = reply.status == 401 || reply.status == 403;
      const ErrorParts parts{
          .place = place,
          .found = fmt::format("{}{}{}", words_of(request, reply),
                               attempt > 1 ? fmt::format(" (after {} tries)", attempt) : "",
                               patient ? "" : fmt::format("; it asks to wait {} s", *reply.retry_after_s)),
          .expected = expected,
          .nearest = "",
          .action = key ? fmt::format("check {}", key_name) : ""};
      throw RequestFailed(describe(parts), reply);
    }
    ++retries;
    if (patience.on_retry) {
      patience.on_retry(fmt::format("{}: {}; try {} of {} in {} s", place, words_of(request, reply), attempt + 1,
                                    patience.tries, pause_s));
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
    wait_s *= 2;
  }
}

}  // namespace kvarena::evaluate
