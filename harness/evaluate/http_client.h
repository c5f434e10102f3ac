#pragma once
// Requests to endpoints over HTTP, for one thread each.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "harness/core/error.h"

namespace kvarena::evaluate {

struct HttpRequest {
  std::string url;
  std::string key;   // sent as bearer token; in no message
  std::string body;  // JSON that is posted; empty: GET
  int64_t timeout_s = 120;
  std::function<void(std::string_view)> on_data;  // sees the body as it comes, of an answer with status 200
};

/// With status 0 no answer came, or half of one, and `body` says why.
struct HttpReply {
  long status = 0;
  std::string body;
  std::optional<double> retry_after_s;
  bool timed_out = false;  // the time of the request was up
};

/// A request without a reply of status 200.
class RequestFailed : public UserError {
 public:
  RequestFailed(const std::string& what, const HttpReply& reply)
      : UserError(what), status_(reply.status), timed_out_(reply.timed_out) {}
  /// Whether there was no room for it: 429 or 503.
  [[nodiscard]] bool refused() const { return status_ == 429 || status_ == 503; }
  /// Whether it took too long, for us or for the server: 408 or 504.
  [[nodiscard]] bool timed_out() const { return timed_out_ || status_ == 408 || status_ == 504; }

 private:
  long status_;
  bool timed_out_;
};

[[nodiscard]] HttpReply exchange(const HttpRequest& request);

/// How often and how long a request is repeated.
struct Patience {
  int64_t tries = 5;            // before giving up
  double first_wait_s = 1;      // before the second try, then doubled; a Retry-After header is obeyed instead
  double longest_wait_s = 120;  // a Retry-After header that asks for more ends it
  std::function<void(const std::string&)> on_retry;  // told why and when it is repeated; may be empty
};

/// Turns to send a request, for any number of threads.
class RequestPace {
  using Clock = std::chrono::steady_clock;

 public:
  explicit RequestPace(int64_t per_minute)
      : apart_(Clock::duration(std::chrono::minutes(1)) / std::max<int64_t>(per_minute, 1)) {}
  /// Returns when it is the caller's turn.
  void wait();

 private:
  Clock::duration apart_;
  std::mutex mutex_;
  Clock::time_point next_;
};

/// The reply with status 200, after tries that `retries` counts where the connection fails, and on 408, 429 and 5xx.
/// Throws RequestFailed with what the endpoint said when tries are used up, when it asks for a wait that is too long,
/// and where repeating is of no use. `expected` and `key_name` are for the message: what was wanted, where the key is
/// from.
[[nodiscard]] HttpReply exchange_patiently(const HttpRequest& request, const Patience& patience, int64_t& retries,
                                           const std::string& expected, const std::string& key_name);

/// The address without a password in it.
[[nodiscard]] std::string shown_url(const std::string& url);
/// The endpoint's words for a message: shortened, the key blanked, without what terminals obey.
[[nodiscard]] std::string shown_words(std::string text, const std::string& key);
/// Throws UserError where the key is none that a header can hold. `key_name`: where it is from.
void require_key_of_header(const std::string& key, const std::string& key_name);

}  // namespace kvarena::evaluate
