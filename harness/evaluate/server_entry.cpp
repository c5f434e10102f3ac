#include "harness/evaluate/server_entry.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/parameters.h"

namespace kvarena::evaluate {
namespace {

using nlohmann::json;

struct Server {
  std::string endpoint, model, engine;
  double ready_s = 600;

  void parameters(ParameterVisitor& p) {
    p("endpoint", endpoint).doc("the server that runs with these settings; empty = the model's");
    p("model", model).doc("as that server names it; empty = the model's");
    p("engine", engine)
        .one_of({"", "kvarena", "vllm", "sglang", "llama.cpp", "openai"})
        .doc("what serves there; empty = the model's");
    p("ready_s", ready_s).above(0).doc("until a server that is started answers, at most");
  }
};

bool is_text(const json& value) { return value.is_string(); }

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// The port of "http://127.0.0.1:8080/v1"; "" where it names none.
std::string port_of(const std::string& url) {
  const size_t host = url.find("//");
  const size_t colon = url.find(':', host == std::string::npos ? 0 : host + 2);
  if (colon == std::string::npos) return "";
  return url.substr(colon + 1, url.find_first_not_of("0123456789", colon + 1) - colon - 1);
}

/// `word` with each "{name}" of `values` filled in. Throws UserError for another name.
std::string filled(const std::string& word, const std::map<std::string, std::string>& values,
                   const std::string& place) {
  std::string text;
  for (size_t at = 0; at < word.size();) {
    const size_t open = word.find('{', at), close = word.find('}', open);
    if (close == std::string::npos) return text + word.substr(at);
    const auto value = values.find(word.substr(open + 1, close - open - 1));
    if (value == values.end()) {
      std::vector<std::string> names;
      for (const auto& [name, unused] : values) names.push_back(fmt::format("{{{}}}", name));
      fail({.place = place + ": start",
            .found = word.substr(open, close + 1 - open),
            .expected = fmt::format("{}, or {{settings}} as a word of its own", fmt::join(names, ", "))});
    }
    text += word.substr(at, open - at) + value->second;
    at = close + 1;
  }
  return text;
}

}  // namespace

std::vector<ParameterInfo> server_parameters() {
  Server server;
  return list_parameters([&](ParameterVisitor& p) { server.parameters(p); });
}

std::vector<std::string> check_server_entry(const json& settings, const std::string& place) {
  Server server;
  std::vector<std::string> problems = read_parameters(
      settings, place, [&](ParameterVisitor& p) { server.parameters(p); }, {"name", "settings", "start"});
  const json told = settings.value("settings", json::object());
  if (!told.is_object()) {
    problems.push_back(describe({.place = place + ".settings",
                                 .found = told.dump(),
                                 .expected = R"(the server's options by name: {"kv_cache_dtype": "auto"})"}));
  }
  const json start = settings.value("start", json::array({""}));
  if (!start.is_array() || start.empty() || !std::ranges::all_of(start, is_text)) {
    problems.push_back(describe({.place = place + ".start",
                                 .found = start.dump(),
                                 .expected = R"(words of a command: ["vllm", "serve", "{model}", "{settings}"])"}));
  }
  return problems;
}

void require_server_entry(const experiment::ModelEntry& model, const experiment::ComponentEntry& method) {
  const bool server = method.name == kServerEntry;
  const std::string place = fmt::format("model {} and method {}", model.label, method.label);
  if (server && model.behind_endpoint()) {
    const std::string url = server_of(model, method).url, shown = shown_url(url);
    if (shown == url) return;
    fail({.place = place + ": endpoint",
          .found = "a password, which the database would hold",
          .expected = fmt::format("{}, and \"key_variable\" for a key", shown)});
  }
  if (server == model.behind_endpoint()) return;
  fail({.place = place,
        .found = server ? "a server's settings, and a model that answers in this process"
                        : "a method of this project, and a model behind an endpoint",
        .expected = server ? "an \"endpoint\" in the model's entry" : R"(methods {"name": "server", ...} alone)",
        .action = "give servers a config of their own; it may write into the same database"});
}

ServerSettings server_of(const experiment::ModelEntry& model, const experiment::ComponentEntry& method) {
  const json own = json::parse(method.settings_json);
  const auto told = [&](const char* key, const std::string& otherwise) {
    const std::string value = own.value(key, "");
    return value.empty() ? otherwise : value;
  };
  return {.url = told("endpoint", model.endpoint),
          .engine = told("engine", model.engine),
          .model = told("model", model.served_name),
          .key_variable = model.key_variable,
          .timeout_s = model.request_timeout_s,
          .patience = {.tries = model.request_tries, .on_retry = {}}};
}

ServerStart start_of(const experiment::ModelEntry& model, const experiment::ComponentEntry& method,
                     const std::filesystem::path& home) {
  const json own = json::parse(method.settings_json);
  const json settings = own.value("settings", json::object());
  std::map<std::string, std::string> values = {
      {"port", port_of(server_of(model, method).url)},
      {"model", model.file(home).string()},
      {"kvarena", fmt::format("/proc/{}/exe", ::getpid())}};  // even when its file was replaced
  for (const auto& [name, value] : settings.items()) values[name] = text_of(value);
  ServerStart start{.words = {}, .ready_s = own.value("ready_s", Server().ready_s)};
  for (const std::string& word : own.at("start").get<std::vector<std::string>>()) {
    if (word != "{settings}") {
      start.words.push_back(filled(word, values, fmt::format("method {}", method.label)));
      continue;
    }
    for (const auto& [name, value] : settings.items()) {
      if (value == false) continue;
      start.words.push_back("--" + name);
      if (value != true) start.words.push_back(text_of(value));
    }
  }
  return start;
}

std::unique_ptr<ServerProcess> start_server(const experiment::ModelEntry& model,
                                            const experiment::ComponentEntry& method,
                                            const std::filesystem::path& home) {
  const CompletionEndpoint asked(server_of(model, method));
  if (asked.answers()) {
    fail({.place = fmt::format("method {}: endpoint", method.label),
          .found = fmt::format("another server at {}", shown_url(asked.settings().url)),
          .expected = "nothing there, for this one is started by the run"});
  }
  ServerStart start = start_of(model, method, home);
  auto server = std::make_unique<ServerProcess>(std::move(start.words));
  server->wait_until([&] { return asked.healthy(); }, start.ready_s);
  return server;
}

}  // namespace kvarena::evaluate
