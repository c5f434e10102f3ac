#pragma once
// A server of the tiny random decoder on a free port of this machine, and what its answers must be.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "harness/engine/model_facts.h"
#include "harness/method/registry.h"
#include "harness/model/open_model.h"
#include "harness/serve/http_server.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model_files.h"
#include "tests/support/tiny_vocabulary.h"

namespace kvarena::serve {

using nlohmann::json;
using Methods = std::vector<json>;

struct ServerSetup {
  LiveSettings engine;
  HttpSettings http{.port = 0};
  std::vector<int32_t> stop_tokens;
  int64_t reuse_bytes = int64_t{1} << 30;
};

/// A token is an ASCII character, whose code is its id. Methods are given as specs; "tiny@i" is the i-th.
class RunningServer {
 public:
  explicit RunningServer(const Methods& methods = {}, ServerSetup setup = {})
      : opened_(written()), model_(testing::tiny_model()), models_("tiny", setup.reuse_bytes) {
    for (size_t i = 0; i < methods.size(); ++i) {
      models_.add(fmt::format("{}", i), methods[i].dump(), make_method(methods[i], "test"));
    }
    models_.open_helpers(model_, "");
    text_ = std::make_unique<ModelText>(ModelText{.tokenizer = *opened_.tokenizer,
                                                  .chat_template = chat_,
                                                  .stop_tokens = setup.stop_tokens,
                                                  .window = model_.config().max_position,
                                                  .vocab_size = model_.config().vocab_size});
    engine_ = std::make_unique<LiveEngine>(model_, model_facts(model_), setup.engine, metrics_);
    http_ = std::make_unique<HttpServer>(*engine_, models_, *text_, metrics_, setup.http);
    port_ = http_->start();
  }

  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] LiveEngine& engine() { return *engine_; }
  [[nodiscard]] const ServedModels& models() const { return models_; }
  [[nodiscard]] HttpServer& http() { return *http_; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return *opened_.tokenizer; }
  [[nodiscard]] const ChatTemplate& chat_template() const { return chat_; }

  [[nodiscard]] httplib::Client client() const {
    httplib::Client client("127.0.0.1", port_);
    client.set_read_timeout(120);
    return client;
  }
  /// The answer to a body; a failure of the test where its status is another.
  [[nodiscard]] json post(const json& body, const std::string& path = "/v1/completions", int status = 200) const {
    const httplib::Result result = client().Post(path, body.dump(), "application/json");
    if (!result) {
      ADD_FAILURE() << httplib::to_string(result.error());
      return {};
    }
    EXPECT_EQ(result->status, status) << result->body;
    return json::parse(result->body, nullptr, false);
  }
  /// The value of a metric without labels or with these, -1 where it is not there.
  [[nodiscard]] double metric(const std::string& name) const {
    const std::string text = metrics_.text();
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }
  /// Waits until a metric has a value; false after a long time.
  [[nodiscard]] bool reaches(const std::string& name, double value) const {
    for (int i = 0; i < 3000 && metric(name) != value; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return metric(name) == value;
  }

 private:
  [[nodiscard]] OpenedModel written() const {
    testing::write_tiny_model(folder_.path(), 1);
    testing::write_vocabulary(folder_.path(), testing::ascii());
    return open_model(folder_.path());
  }

  testing::TemporaryFolder folder_;
  OpenedModel opened_;
  Transformer model_;
  ChatTemplate chat_ = ChatTemplate::from_text(
      "{% if tools %}T:{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
      "{% if add_generation_prompt %}a:{% endif %}",
      "", "");
  ServedModels models_;
  ServerMetrics metrics_;
  std::unique_ptr<ModelText> text_;
  std::unique_ptr<LiveEngine> engine_;
  std::unique_ptr<HttpServer> http_;
  int port_ = 0;
};

/// Computes with a copy of the model, which no server touches.
class Reference {
 public:
  Reference() : model_(testing::tiny_model()), facts_(model_facts(model_)) {}

  /// A session's new tokens under a method, alone; null: full KV.
  [[nodiscard]] std::vector<int32_t> tokens(const std::vector<int32_t>& prompt, const json& method,
                                            SessionOptions options) {
    const std::unique_ptr<Method> made = method.is_null() ? std::make_unique<Method>() : make_method(method, "test");
    Prefill read = prefill(model_, prompt, made->needs(), kPrefillChunk, facts_);
    read.layout.results = options.results;
    const auto session = start_session(model_, read, *made, std::move(options));
    Session* const one[] = {session.get()};
    run_together(model_, one);
    EXPECT_EQ(session->failure, "");
    return session->tokens;
  }
  [[nodiscard]] Transformer& model() { return model_; }

 private:
  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
};

/// -1 where no response came.
inline int status_of(const httplib::Result& result) { return result ? result->status : -1; }

inline std::string text_of(const std::vector<int32_t>& tokens) { return {tokens.begin(), tokens.end()}; }

/// Data of server-sent events.
inline std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return events;
}

/// One of each kind of session.
inline std::vector<json> every_kind() {
  return {json{{"name", "snapkv"}, {"keep", 0.25}},
          json{{"name", "streaming_llm"}, {"tokens", 32}},
          json{{"name", "h2o"}, {"keep", 0.5}},
          json{{"name", "kivi"}, {"bits", 2}},
          json{{"name", "quest"}, {"keep", 0.25}},
          json{{"name", "kvzip"}, {"keep", 0.5}},
          json{{"name", "vericache"}, {"draft_length", 5}, {"drafter", {{"name", "snapkv"}, {"keep", 0.25}}}},
          json{{"name", "epic"}, {"chunk", 64}, {"tokens", 8}},
          json{{"name", "ngram"}}};
}

}  // namespace kvarena::serve
