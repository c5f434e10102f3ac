#pragma once
// The HTTP side: routes, limits of bodies, the key, streams.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "harness/serve/api_key.h"
#include "harness/serve/live_engine.h"
#include "harness/serve/request_plan.h"
#include "harness/serve/served_models.h"
#include "harness/serve/server_metrics.h"

namespace httplib {
class Server;
struct Request;
struct Response;
class ContentReader;
}  // namespace httplib

namespace kvarena::serve {

/// Whether this machine alone can reach the address: 127.x.y.z, ::1 and "localhost".
[[nodiscard]] bool is_loopback(const std::string& host);

struct HttpSettings {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: any that is free
  std::string key;  // empty: none is asked for
  int64_t most_body_bytes = int64_t{8} << 20;
  int64_t connections = 64;  // at a time; others wait
  RequestLimits limits;
};

class HttpServer {
 public:
  /// The engine, the models and their text must outlive it.
  HttpServer(LiveEngine& engine, const ServedModels& models, const ModelText& text, ServerMetrics& metrics,
             HttpSettings settings);
  /// Closes every connection.
  ~HttpServer();

  /// Binds and answers on threads of its own; returns the port. Throws UserError where it cannot bind.
  int start();
  /// Ends streams under way and returns when no connection is left. Where the engine has stopped, what it left is sent
  /// before.
  void stop();

 private:
  void add_routes();
  /// Answers what has a body, which is read whatever comes of it, so that the connection can go on.
  void answer_body(const httplib::Request& http, httplib::Response& response, const httplib::ContentReader& reader);
  void complete(const httplib::Request& http, httplib::Response& response, const std::string& body, bool chat);
  void require_key(const httplib::Request& http) const;
  /// Runs a handler; what it throws becomes an error of the API.
  template <typename Handler>
  void guard(httplib::Response& response, Handler&& handler);

  LiveEngine& engine_;
  const ServedModels& models_;
  const ModelText& text_;
  ServerMetrics& metrics_;
  HttpSettings settings_;
  ApiKey key_;
  int64_t began_;                     // seconds since 1970
  std::atomic<int64_t> answers_ = 0;  // for their ids
  std::atomic<int64_t> open_ = 0;     // answers that are being written
  std::unique_ptr<httplib::Server> server_;
  std::thread thread_;
};

}  // namespace kvarena::serve
