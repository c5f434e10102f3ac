#include "harness/serve/server_metrics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/serve/api_error.h"
#include "harness/serve/api_key.h"

namespace kvarena::serve {
namespace {

bool has_line(const std::string& text, const std::string& line) { return text.find(line + "\n") != std::string::npos; }

TEST(ServerMetrics, CountByModelAndOutcome) {
  ServerMetrics metrics;
  metrics.add({.model = "a@x:y=\"z\"",
               .prompt_tokens = 5,
               .answer_tokens = 3,
               .cached_tokens = 2,
               .first_token_s = 0.02,
               .seconds = 0.7});
  metrics.add({.model = "a@x:y=\"z\"", .prompt_tokens = 7, .answer_tokens = 1, .first_token_s = 400, .seconds = 500});
  metrics.add(
      {.model = "b", .outcome = serving::Outcome::cancelled, .prompt_tokens = 9, .answer_tokens = 0, .seconds = 1});
  metrics.set_load({.running = 4, .waiting = 2, .reserved_bytes = 1000, .passes = 17});
  metrics.add_status(200);
  metrics.add_status(200);
  metrics.add_status(404);
  const std::string text = metrics.text();
  for (const char* line :
       {R"(kvarena_requests_total{model="a@x:y=\"z\"",outcome="answered"} 2)",
        R"(kvarena_requests_total{model="b",outcome="cancelled"} 1)",
        R"(kvarena_prompt_tokens_total{model="a@x:y=\"z\""} 12)",
        R"(kvarena_answer_tokens_total{model="a@x:y=\"z\""} 4)",
        R"(kvarena_cached_tokens_total{model="a@x:y=\"z\""} 2)", "kvarena_requests_running 4",
        "kvarena_requests_waiting 2", "kvarena_cache_reserved_bytes 1000", "kvarena_passes_total 17",
        R"(kvarena_http_responses_total{status="200"} 2)", R"(kvarena_http_responses_total{status="404"} 1)",
        R"(kvarena_time_to_first_token_seconds_bucket{model="a@x:y=\"z\"",le="0.01"} 0)",
        R"(kvarena_time_to_first_token_seconds_bucket{model="a@x:y=\"z\"",le="0.025"} 1)",
        R"(kvarena_time_to_first_token_seconds_bucket{model="a@x:y=\"z\"",le="300"} 1)",
        R"(kvarena_time_to_first_token_seconds_bucket{model="a@x:y=\"z\"",le="+Inf"} 2)",
        R"(kvarena_time_to_first_token_seconds_count{model="a@x:y=\"z\""} 2)",
        R"(kvarena_request_seconds_count{model="b"} 0)", "# TYPE kvarena_request_seconds histogram"}) {
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
  }
}

TEST(ApiKey, AcceptsItsKeyAlone) {
  const ApiKey key("secret");
  EXPECT_TRUE(key.required());
  EXPECT_TRUE(key.accepts("Bearer secret"));
  for (const char* header :
       {"", "secret", "Bearer ", "Bearer secre", "Bearer secret ", "bearer secret", "Basic secret"}) {
    EXPECT_FALSE(key.accepts(header)) << header;
  }
  EXPECT_FALSE(ApiKey("").required());
  EXPECT_TRUE(ApiKey("").accepts(""));
}

TEST(ApiError, HasTheApisForm) {
  const auto error = nlohmann::json::parse(ApiError(429, "too many").body()).at("error");
  EXPECT_EQ(error.at("type"), "rate_limit_error");
  EXPECT_EQ(error.at("message"), "too many");
  EXPECT_EQ(error.at("code"), 429);
  EXPECT_TRUE(error.at("param").is_null());
  EXPECT_EQ(nlohmann::json::parse(ApiError(400, "x", "stop").body()).at("error").at("param"), "stop");
}

}  // namespace
}  // namespace kvarena::serve
