#pragma once
// A server of completions that the test tells what to answer.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace kvarena::evaluate {

/// A token is an ASCII character, whose code is its id. The model "tiny" answers "ab", "tiny-fp8" "ac". Of a given text
/// each token has the probability 1/2 and "x" 1/4, of tiny-fp8 the reverse. It speaks for vLLM, SGLang and llama.cpp.
class FakeServer {
 public:
  using json = nlohmann::json;
  /// Answers in place of the server; false: the server does.
  using Trouble = std::function<bool(const json& asked, httplib::Response& response)>;

  /// Listens at a free port unless one is named.
  explicit FakeServer(int port = 0) : port_(port) {
    server_.Get("/v1/models", [this](const auto&, auto& response) {
      response.set_content(json{{"data", {{{"id", "tiny"}}, {{"id", "tiny-fp8"}}}}}.dump(), "application/json");
    });
    server_.Get("/version", [](const auto&, auto& response) {
      response.set_content(R"({"version": "1.2.3"})", "application/json");
    });
    server_.Get("/metrics", [this](const auto&, auto& response) {
      response.set_content(fmt::format("# HELP vllm:prefix_cache_hits_total x\n"
                                       "vllm:prefix_cache_hits_total{{engine=\"0\"}} {}\n"
                                       "vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.5\nvllm:requests 3\n",
                                       10 * answers_),
                           "text/plain");
    });
    server_.Post("/tokenize", [this](const httplib::Request& http, httplib::Response& response) {
      EXPECT_TRUE(json::parse(http.body).at("add_generation_prompt").get<bool>());
      response.set_content(json{{"tokens", rendered}}.dump(), "application/json");
    });
    server_.Post("/apply-template", [this](const auto&, auto& response) {
      response.set_content(json{{"prompt", std::string(rendered.begin(), rendered.end())}}.dump(), "application/json");
    });
    server_.Get("/props", [](const auto&, auto& response) {
      response.set_content(R"({"build_info": "b7"})", "application/json");
    });
    server_.Post("/completion", [this](const httplib::Request& http, httplib::Response& response) {
      const json body = json::parse(http.body);
      {
        const std::lock_guard lock(mutex_);
        steps_.push_back(body);
      }
      response.set_content(likeliest(body).dump(), "application/json");
    });
    server_.Get("/get_server_info",
                [](const auto&, auto& response) { response.set_content(R"({"version": "0.5"})", "application/json"); });
    server_.Post("/generate", [this](const httplib::Request& http, httplib::Response& response) {
      response.set_content(generated(json::parse(http.body)).dump(), "application/json");
    });
    server_.Post("/v1/chat/completions", [this](const httplib::Request& http, httplib::Response& response) {
      const json body = json::parse(http.body);
      const std::lock_guard lock(mutex_);
      asked_.push_back(body);
      const json message = {{"role", "assistant"}, {"content", "ab"}};
      const json reply = {{"model", body.at("model")},
                          {"choices", {{{"message", message}, {"finish_reason", "stop"}}}}};
      response.set_content(reply.dump(), "application/json");
    });
    server_.Post("/v1/completions", [this](const httplib::Request& http, httplib::Response& response) {
      const json body = json::parse(http.body);
      const Counted counted(*this);
      {
        const std::lock_guard lock(mutex_);
        asked_.push_back(body);
        key_ = http.get_header_value("Authorization");
      }
      if (!trouble || !trouble(body, response)) answer(body, response);
    });
    if (port_ == 0) {
      port_ = server_.bind_to_any_port("127.0.0.1");
    } else {
      EXPECT_TRUE(server_.bind_to_port("127.0.0.1", port_));
    }
    thread_ = std::jthread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~FakeServer() { server_.stop(); }

  [[nodiscard]] int port() const { return port_; }
  void stop() { server_.stop(); }
  [[nodiscard]] std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  [[nodiscard]] std::vector<json> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  [[nodiscard]] std::string key() {
    const std::lock_guard lock(mutex_);
    return key_;
  }

  /// Ends the connection in the middle of the response's body.
  static void cut(httplib::Response& response, const std::string& begin, const char* type = "application/json") {
    response.set_chunked_content_provider(type, [begin](size_t offset, httplib::DataSink& sink) {
      if (offset == 0) sink.write(begin.data(), begin.size());
      return false;
    });
  }

  /// Requests of one token behind a prompt, in llama.cpp's own form.
  [[nodiscard]] std::vector<json> steps() {
    const std::lock_guard lock(mutex_);
    return steps_;
  }
  /// Most requests at a time so far.
  [[nodiscard]] int64_t most_at_a_time() const { return most_; }

  std::vector<int32_t> rendered;  // a conversation, by the server's template
  Trouble trouble;                // set while nothing is asked
  bool alike = false;             // tiny-fp8 answers as tiny
  bool alike_in_words = false;    // it does, with other probabilities

 private:
  /// A request to v1/completions under way.
  class Counted {
   public:
    explicit Counted(FakeServer& server) : server_(server) {
      const int64_t now = ++server_.at_a_time_;
      for (int64_t most = server_.most_; most < now && !server_.most_.compare_exchange_weak(most, now);) {
      }
    }
    ~Counted() { --server_.at_a_time_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    FakeServer& server_;
  };

  /// Behind any prompt "a" has 1/2, "x" 1/4 and the others 1/512 each; of tiny-fp8 the first two reversed.
  [[nodiscard]] json likeliest(const json& body) const {
    const bool fp8 = body.at("model") == "tiny-fp8" && !alike;
    json tops = json::array();
    for (int32_t id = 0, left = body.at("n_probs").get<int32_t>(); id < 128 && left > 0; ++id, --left) {
      const double share = id == (fp8 ? 1 : 0) ? 0.5 : id < 2 ? 0.25 : 1.0 / 512;
      const int32_t token = id == 0 ? 'a' : id == 1 ? 'x' : id == 'a' ? 0 : id == 'x' ? 1 : id;
      tops.push_back({{"id", token}, {"logprob", std::log(share)}});
    }
    return {{"completion_probabilities", {{{"id", 'a'}, {"logprob", 0.0}, {"top_logprobs", tops}}}}};
  }
  /// Scores of a prompt in SGLang's own form: [log-probability, token, text], of the first token none.
  static json generated(const json& body) {
    const json& prompt = body.at("input_ids");
    json values = {json::array({nullptr, prompt.at(0), nullptr})}, tops = {nullptr};
    for (size_t i = 1; i < prompt.size(); ++i) {
      const json own = json::array({std::log(0.5), prompt[i], nullptr});
      values.push_back(own);
      tops.push_back({own, json::array({std::log(0.25), 'x', nullptr})});
    }
    return {{"text", "a"}, {"meta_info", {{"input_token_logprobs", values}, {"input_top_logprobs", tops}}}};
  }
  void answer(const json& body, httplib::Response& response) {
    const std::string model = body.at("model");
    const bool fp8 = model == "tiny-fp8" && !alike;
    const std::string text = fp8 && !alike_in_words ? "ac" : "ab";
    json choice = {{"index", 0}, {"text", text}, {"finish_reason", "stop"}, {"token_ids", {text[0], text[1]}}};
    const size_t prompt = body.at("prompt").size();
    if (body.value("echo", false)) choice["logprobs"] = scores(body.at("prompt"), fp8);
    ++answers_;
    if (body.value("stream", false)) return stream(model, prompt, response);
    json reply = {{"model", model}, {"choices", {choice}}};
    reply["usage"] = {
        {"prompt_tokens", prompt}, {"completion_tokens", 2}, {"prompt_tokens_details", {{"cached_tokens", 4}}}};
    response.set_content(reply.dump(), "application/json");
  }
  static json scores(const json& prompt, bool fp8) {
    json list = {{"tokens", json::array()}, {"token_logprobs", json::array()}, {"top_logprobs", json::array()}};
    const double own = std::log(fp8 ? 0.25 : 0.5), other = std::log(fp8 ? 0.5 : 0.25);
    for (const json& id : prompt) {
      const std::string name = fmt::format("token_id:{}", id.get<int>());
      list["tokens"].push_back(name);
      list["token_logprobs"].push_back(own);
      list["top_logprobs"].push_back({{name, own}, {"x", other}});
    }
    return list;
  }
  /// Three tokens with 30 ms before each but the first.
  static void stream(const std::string& model, size_t prompt, httplib::Response& response) {
    response.set_chunked_content_provider("text/event-stream", [=](size_t, httplib::DataSink& sink) {
      for (const char* text : {"a", "b", "c"}) {
        if (*text != 'a') std::this_thread::sleep_for(std::chrono::milliseconds(30));
        json chunk = {{"model", model}};
        chunk["choices"] = {{{"text", text}, {"finish_reason", nullptr}}};
        if (*text == 'c') chunk["choices"][0]["finish_reason"] = "length";
        const std::string event = fmt::format("data: {}\n\n", chunk.dump());
        sink.write(event.data(), event.size());
      }
      const json usage = {{"model", model},
                          {"choices", json::array()},
                          {"usage", {{"prompt_tokens", prompt}, {"completion_tokens", 3}}}};
      const std::string end = fmt::format("data: {}\n\ndata: [DONE]\n\n", usage.dump());
      sink.write(end.data(), end.size());
      sink.done();
      return true;
    });
  }

  httplib::Server server_;
  int port_ = 0;
  std::atomic<int64_t> answers_ = 0;
  std::mutex mutex_;
  std::vector<json> asked_;
  std::vector<json> steps_;
  std::atomic<int64_t> at_a_time_ = 0;
  std::atomic<int64_t> most_ = 0;
  std::string key_;
  std::jthread thread_;
};

}  // namespace kvarena::evaluate
