#pragma once
// Requests to endpoints over HTTP, for one thread each.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

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
};

[[nodiscard]] HttpReply exchange(const HttpRequest& request);

/// How often and how long a request is repeated.
struct Patience {
  int64_t tries = 5;            // before giving up
  double first_wait_s = 1;      // before the second try, then doubled; a Retry-After header is obeyed instead
  double longest_wait_s = 120;  // a Retry-After header that asks for more ends it
  std::function<void(const std::string&)> on_retry;  // told why and when it is repeated; may be empty
};

/// The reply with status 200, after tries that `retries` counts where the connection fails, and on 408, 429 and 5xx.
/// Throws UserError with what the endpoint said when tries are used up, when it asks for a wait that is too long, and
/// where repeating is of no use. `expected` and `key_name` are for the message: what was wanted, where the key is from.
[[nodiscard]] HttpReply exchange_patiently(const HttpRequest& request, const Patience& patience, int64_t& retries,
                                           const std::string& expected, const std::string& key_name);

/// The address without a password in it.
[[nodiscard]] std::string shown_url(const std::string& url);
/// The endpoint's words for a message: shortened, the key blanked, without what terminals obey.
[[nodiscard]] std::string shown_words(std::string text, const std::string& key);
/// Throws UserError where the key is none that a header can hold. `key_name`: where it is from.
void require_key_of_header(const std::string& key, const std::string& key_name);

}  // namespace kvarena::evaluate
