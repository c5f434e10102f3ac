#pragma once
// A request that is being answered: its prompts in the engine, and what came of them.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "harness/serve/answer_json.h"
#include "harness/serve/client_connection.h"
#include "harness/serve/live_engine.h"

namespace kvarena::serve {

/// Its end cancels what the engine still computes for it.
class Answering {
 public:
  /// Submits every prompt. Throws ApiError where the model or the engine refuses one. What is given must outlive it.
  Answering(CompletionRequest request, const ServedModel& model, const ModelText& text, const RequestLimits& limits,
            LiveEngine& engine, ClientConnection client, AnswerHead head);
  ~Answering();
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

  /// The whole answer as JSON; empty when the client has gone meanwhile. Throws ApiError where there is none.
  [[nodiscard]] std::string whole();

  /// Waits for the first token of a stream, so that an error still has its status; false when the client has gone.
  [[nodiscard]] bool begin_stream();
  /// The next server-sent events, "" where there is nothing yet.
  [[nodiscard]] std::string next_events();
  [[nodiscard]] bool stream_over() const { return stream_over_; }
  [[nodiscard]] bool client_gone() const { return client_.gone(); }

 private:
  [[nodiscard]] std::string events_of(const News& news);

  CompletionRequest request_;
  const ModelText* text_;
  ClientConnection client_;
  AnswerHead head_;
  std::vector<std::shared_ptr<AnswerStream>> streams_;
  std::vector<Choice> choices_;
  News first_;  // of a stream
  bool begun_ = false;
  bool told_ = false;  // the first chunk
  Piece held_;         // that is not told yet
  bool stream_over_ = false;
};

}  // namespace kvarena::serve
