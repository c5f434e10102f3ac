#include "harness/serve/server_metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvarena::serve {
namespace {

/// A label's value with the characters escaped that end it.
std::string escaped(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text;
}

void head(std::string& text, const char* name, const char* type, const char* help) {
  text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

}  // namespace

void ServerMetrics::Histogram::add(double seconds) {
  const auto place = std::ranges::lower_bound(kBounds, seconds) - kBounds.begin();
  ++counts[static_cast<size_t>(place)];
  sum += seconds;
}

void ServerMetrics::Histogram::write(std::string& text, const std::string& name, const std::string& model) const {
  int64_t count = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    count += counts[i];
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    text += fmt::format("{}_bucket{{model=\"{}\",le=\"{}\"}} {}\n", name, model, bound, count);
  }
  text += fmt::format("{}_sum{{model=\"{}\"}} {}\n{}_count{{model=\"{}\"}} {}\n", name, model, sum, name, model, count);
}

void ServerMetrics::add(const ServedCount& request) {
  const std::lock_guard lock(mutex_);
  Model& model = models_[request.model];
  ++model.requests[request.outcome];
  model.prompt_tokens += request.prompt_tokens;
  model.answer_tokens += request.answer_tokens;
  model.cached_tokens += request.cached_tokens;
  if (request.first_token_s) model.first_token.add(*request.first_token_s);
  if (request.outcome == serving::Outcome::answered) model.whole.add(request.seconds);
}

void ServerMetrics::set_load(const EngineLoad& load) {
  const std::lock_guard lock(mutex_);
  load_ = load;
}

void ServerMetrics::add_status(int status) {
  const std::lock_guard lock(mutex_);
  ++statuses_[status];
}

std::string ServerMetrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  const auto gauge = [&](const char* name, const char* help, int64_t value) {
    head(text, name, "gauge", help);
    text += fmt::format("{} {}\n", name, value);
  };
  gauge("kvarena_requests_running", "Requests in passes.", load_.running);
  gauge("kvarena_requests_waiting", "Requests that wait to be admitted.", load_.waiting);
  gauge("kvarena_cache_reserved_bytes", "Bytes of cache that admitted requests may come to hold.",
        load_.reserved_bytes);
  head(text, "kvarena_passes_total", "counter", "Passes of the model.");
  text += fmt::format("kvarena_passes_total {}\n", load_.passes);
  head(text, "kvarena_http_responses_total", "counter", "Responses by status.");
  for (const auto& [status, count] : statuses_) {
    text += fmt::format("kvarena_http_responses_total{{status=\"{}\"}} {}\n", status, count);
  }
  head(text, "kvarena_requests_total", "counter", "Requests that left, by outcome.");
  for (const auto& [name, model] : models_) {
    for (const auto& [outcome, count] : model.requests) {
      text += fmt::format("kvarena_requests_total{{model=\"{}\",outcome=\"{}\"}} {}\n", escaped(name),
                          to_string(outcome), count);
    }
  }
  const auto counter = [&](const char* name, const char* help, int64_t Model::*member) {
    head(text, name, "counter", help);
    for (const auto& [model, counts] : models_) {
      text += fmt::format("{}{{model=\"{}\"}} {}\n", name, escaped(model), counts.*member);
    }
  };
  counter("kvarena_prompt_tokens_total", "Prompt tokens of requests that left.", &Model::prompt_tokens);
  counter("kvarena_answer_tokens_total", "Tokens of answers.", &Model::answer_tokens);
  counter("kvarena_cached_tokens_total", "Prompt tokens whose entries were reused.", &Model::cached_tokens);
  const auto histogram = [&](const char* name, const char* help, Histogram Model::*member) {
    head(text, name, "histogram", help);
    for (const auto& [model, counts] : models_) (counts.*member).write(text, name, escaped(model));
  };
  histogram("kvarena_time_to_first_token_seconds", "From arrival to the first token.", &Model::first_token);
  histogram("kvarena_request_seconds", "From arrival to the last token.", &Model::whole);
  return text;
}

}  // namespace kvarena::serve
