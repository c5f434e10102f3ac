#include "harness/serve/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <httplib.h>
#include <netinet/in.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/core/json_text.h"
#include "harness/serve/answering.h"
#include "harness/serve/api_error.h"

namespace kvarena::serve {
namespace {

constexpr const char* kJson = "application/json";
constexpr int kClientGone = 499;  // which nobody reads, as other servers note it
constexpr int kBacklog = 1024;
constexpr time_t kReadSeconds = 30;   // that a client may pause in sending
constexpr time_t kWriteSeconds = 30;  // and in reading
constexpr time_t kKeepAliveSeconds = 5;
constexpr size_t kKeepAliveRequests = 1000;
constexpr int64_t kDiscarded = int64_t{64} << 20;  // bytes of a body too large, so that its client reads why

int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ClientConnection connection_of(const httplib::Request& http) { return {http.remote_addr, http.remote_port}; }

ApiError not_served(const httplib::Request& http) {
  return {405, fmt::format("{} is not served; GET and POST are", http.method)};
}

void refuse(httplib::Response& response, const ApiError& error) {
  response.status = error.status();
  if (error.status() == 429 || error.status() == 503) response.set_header("Retry-After", "1");
  if (error.status() == 401) response.set_header("WWW-Authenticate", "Bearer");
  response.set_content(error.body(), kJson);
}

/// Has the connection end with the response: what follows on it cannot be told from the next request.
void close_behind(httplib::Response& response) { response.set_header("Connection", "close"); }

/// The request's body, as it came through `reader`, decompressed; read to its end even where it is refused, so that the
/// client reads why. Throws ApiError: 413 where it is too large.
std::string read_body(const httplib::Request& http, httplib::Response& response, const httplib::ContentReader& reader,
                      int64_t most) {
  if (!http.has_header("Content-Length") && !http.has_header("Transfer-Encoding")) {
    close_behind(response);
    if (http.method != "POST") throw not_served(http);
    throw ApiError(411, describe({.place = "Content-Length", .found = "nothing", .expected = "the body's length"}));
  }
  std::string body;
  int64_t bytes = 0;
  const auto take = [&](const char* data, size_t size) {
    bytes += static_cast<int64_t>(size);
    if (bytes <= most) body.append(data, size);
    return bytes <= most + kDiscarded;
  };
  const bool parts = http.is_multipart_form_data();
  const bool whole = parts ? reader([](const auto&) { return true; }, take) : reader(take);
  if (!whole) close_behind(response);
  if (bytes > most) {
    throw ApiError(413, describe({.place = "body",
                                  .found = whole ? fmt::format("{} bytes", bytes) : "more and more bytes",
                                  .expected = fmt::format("at most {}", most)}));
  }
  if (parts) {
    throw ApiError(400, describe({.place = "Content-Type", .found = "multipart/form-data", .expected = kJson}));
  }
  if (!whole)
    throw ApiError(400, describe({.place = "body", .found = "an end before its end", .expected = "all of it"}));
  return body;
}

/// Sends what came; false once there is nobody to send it to.
bool write_next(Answering& answering, httplib::DataSink& sink) {
  const std::string events = answering.next_events();
  if (events.empty()) return !answering.client_gone();
  if (!sink.write(events.data(), events.size())) return false;
  if (answering.stream_over()) sink.done();
  return true;
}

}  // namespace

bool is_loopback(const std::string& host) {
  in_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) == 1) return ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
  return host == "localhost" || host == "::1";
}

HttpServer::HttpServer(LiveEngine& engine, const ServedModels& models, const ModelText& text, ServerMetrics& metrics,
                       HttpSettings settings)
    : engine_(engine),
      models_(models),
      text_(text),
      metrics_(metrics),
      settings_(std::move(settings)),
      key_(settings_.key),
      began_(seconds_since_1970()),
      server_(std::make_unique<httplib::Server>()) {
  settings_.key.clear();
  add_routes();
}

HttpServer::~HttpServer() { stop(); }

int HttpServer::start() {
  int listening = -1;
  server_->set_socket_options([&](int socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    listening = socket;
  });
  const int port = settings_.port == 0 ? server_->bind_to_any_port(settings_.host) : settings_.port;
  const bool bound = settings_.port == 0 ? port > 0 : server_->bind_to_port(settings_.host, port);
  if (!bound) {
    fail({.place = fmt::format("{}:{}", settings_.host, settings_.port),
          .found = "an address that cannot be bound",
          .expected = "a free port of this machine",
          .action = "choose another --port (0: any) or --host"});
  }
  ::listen(listening, kBacklog);  // the library's own queue is short
  thread_ = std::thread([this] { server_->listen_after_bind(); });
  while (!server_->is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return port;
}

void HttpServer::stop() {
  if (!thread_.joinable()) return;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(kWriteSeconds);
  while (engine_.stopping() && open_ > 0 && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  server_->stop();
  thread_.join();
}

template <typename Handler>
void HttpServer::guard(httplib::Response& response, Handler&& handler) {
  const std::string failure = failure_of([&] {
    try {
      handler();
    } catch (const ApiError& error) {
      refuse(response, error);
    }
  });
  if (!failure.empty()) refuse(response, ApiError(500, failure));
}

void HttpServer::require_key(const httplib::Request& http) const {
  if (key_.accepts(http.get_header_value("Authorization"))) return;
  throw ApiError(401, "the header \"Authorization: Bearer KEY\" lacks this server's key");
}

void HttpServer::add_routes() {
  httplib::Server& server = *server_;
  const auto threads = static_cast<size_t>(settings_.connections);
  server.new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
  server.set_tcp_nodelay(true);
  server.set_read_timeout(kReadSeconds);
  server.set_write_timeout(kWriteSeconds);
  server.set_keep_alive_timeout(kKeepAliveSeconds);
  server.set_keep_alive_max_count(kKeepAliveRequests);
  server.set_logger([this](const httplib::Request& http, const httplib::Response& response) {
    metrics_.add_status(response.status);
    if (response.get_header_value("Connection") == "close") connection_of(http).stop_reading();
  });
  server.set_pre_routing_handler([](const httplib::Request& http, httplib::Response& response) {
    using Decision = httplib::Server::HandlerResponse;
    for (const char* method : {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}) {
      if (http.method == method) return Decision::Unhandled;
    }
    close_behind(response);  // a body of theirs would have no limit
    refuse(response, not_served(http));
    return Decision::Handled;
  });
  server.set_error_handler([](const httplib::Request& http, httplib::Response& response) {
    if (!response.body.empty()) return;
    const bool lost = response.status == 404;
    refuse(response, ApiError(response.status, lost ? fmt::format("there is no {}", http.path)
                                                    : "a request that is not HTTP as this server reads it"));
  });
  server.Get("/health", [this](const auto&, httplib::Response& response) {
    const bool stops = engine_.stopping();
    response.status = stops ? 503 : 200;
    response.set_content(stops ? R"({"status":"stopping"})" : R"({"status":"ok"})", kJson);
  });
  server.Get("/version", [](const auto&, httplib::Response& response) {
    response.set_content(nlohmann::json{{"version", KVARENA_VERSION}}.dump(), kJson);
  });
  server.Get("/metrics", [this](const httplib::Request& http, httplib::Response& response) {
    guard(response, [&] {
      require_key(http);
      response.set_content(metrics_.text(), "text/plain; version=0.0.4");
    });
  });
  server.Get("/v1/models", [this](const httplib::Request& http, httplib::Response& response) {
    guard(response, [&] {
      require_key(http);
      response.set_content(json_text(models_json(models_.all(), began_)), kJson);
    });
  });
  server.Get("/v1/models/(.+)", [this](const httplib::Request& http, httplib::Response& response) {
    guard(response, [&] {
      require_key(http);
      response.set_content(json_text(model_json(models_.find(http.matches[1]), began_)), kJson);
    });
  });
  const auto answer = [this](const httplib::Request& http, httplib::Response& response,
                             const httplib::ContentReader& reader) {
    guard(response, [&] { answer_body(http, response, reader); });
  };
  server.Post(".*", answer).Put(".*", answer).Patch(".*", answer).Delete(".*", answer);
}

void HttpServer::answer_body(const httplib::Request& http, httplib::Response& response,
                             const httplib::ContentReader& reader) {
  const std::string body = read_body(http, response, reader, settings_.most_body_bytes);
  if (http.method != "POST") throw not_served(http);
  require_key(http);
  const bool chat = http.path == "/v1/chat/completions";
  if (!chat && http.path != "/v1/completions") throw ApiError(404, fmt::format("there is no POST {}", http.path));
  complete(http, response, body, chat);
}

void HttpServer::complete(const httplib::Request& http, httplib::Response& response, const std::string& body,
                          bool chat) {
  CompletionRequest request = chat ? parse_chat(body) : parse_completion(body);
  const ServedModel& model = models_.find(request.model);
  const bool streams = request.stream;
  const AnswerHead head{.id = fmt::format("{}-{:x}-{}", chat ? "chatcmpl" : "cmpl", began_, ++answers_),
                        .model = model.name,
                        .created = seconds_since_1970(),
                        .chat = chat,
                        .tools = request.conversation && request.conversation->tools,
                        .token_ids = request.token_ids,
                        .named_by_id = request.named_by_id};
  ++open_;
  const std::shared_ptr<void> open(nullptr, [this](void*) { --open_; });
  const auto answering = std::make_shared<Answering>(std::move(request), model, text_, settings_.limits, engine_,
                                                     connection_of(http), head);
  if (!streams) {
    const std::string whole = answering->whole();
    response.status = whole.empty() ? kClientGone : 200;
    response.set_content(whole, kJson);
    return;
  }
  if (!answering->begin_stream()) {
    response.status = kClientGone;
    return;
  }
  response.set_chunked_content_provider("text/event-stream", [open, answering](size_t, httplib::DataSink& sink) {
    bool goes_on = true;
    const std::string failure = failure_of([&] { goes_on = write_next(*answering, sink); });
    return failure.empty() && goes_on;
  });
}

}  // namespace kvarena::serve
