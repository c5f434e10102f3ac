#include "harness/serve/api_error.h"

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/json_text.h"

namespace kvarena::serve {

using nlohmann::json;

const char* ApiError::type() const {
  switch (status_) {
    case 401: return "authentication_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable";
    case 504: return "timeout_error";
    default: return status_ < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string ApiError::body() const {
  json error = json::object();
  error["message"] = what();
  error["type"] = type();
  error["param"] = param_.empty() ? json() : json(param_);
  error["code"] = status_;
  return json_text(json{{"error", std::move(error)}});
}

void refuse(const std::string& field, const std::string& found, const std::string& expected) {
  throw ApiError(400, describe({.place = field, .found = found, .expected = expected}), field);
}

}  // namespace kvarena::serve
