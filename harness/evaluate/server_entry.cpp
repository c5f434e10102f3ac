#include "harness/evaluate/server_entry.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/parameters.h"

namespace kvarena::evaluate {
namespace {

using nlohmann::json;

struct Server {
  std::string endpoint, model;

  void parameters(ParameterVisitor& p) {
    p("endpoint", endpoint).doc("the server that runs with these settings; empty = the model's");
    p("model", model).doc("as that server names it; empty = the model's");
  }
};

}  // namespace

std::vector<ParameterInfo> server_parameters() {
  Server server;
  return list_parameters([&](ParameterVisitor& p) { server.parameters(p); });
}

std::vector<std::string> check_server_entry(const json& settings, const std::string& place) {
  Server server;
  std::vector<std::string> problems =
      read_parameters(settings, place, [&](ParameterVisitor& p) { server.parameters(p); }, {"name", "settings"});
  const json told = settings.value("settings", json::object());
  if (!told.is_object()) {
    problems.push_back(describe({.place = place + ".settings",
                                 .found = told.dump(),
                                 .expected = R"(the server's options by name: {"kv_cache_dtype": "auto"})"}));
  }
  return problems;
}

void require_server_entry(const experiment::ModelEntry& model, const experiment::ComponentEntry& method) {
  const bool server = method.name == kServerEntry;
  if (server == model.behind_endpoint()) return;
  fail({.place = fmt::format("model {} and method {}", model.label, method.label),
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
          .engine = model.engine,
          .model = told("model", model.served_name),
          .key_variable = model.key_variable,
          .timeout_s = model.request_timeout_s,
          .patience = {.tries = model.request_tries, .on_retry = {}}};
}

}  // namespace kvarena::evaluate
