#pragma once
// Entries "server" of a config's methods: settings of a server that a model is behind. They are labels; the server is
// started with them by whoever runs it.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/evaluate/completion_endpoint.h"
#include "harness/experiment/config.h"

namespace kvarena::evaluate {

inline constexpr const char* kServerEntry = "server";

/// Its parameters but "settings", an object of names and values.
[[nodiscard]] std::vector<ParameterInfo> server_parameters();
/// Every problem of an entry, as check_method() has it.
[[nodiscard]] std::vector<std::string> check_server_entry(const nlohmann::json& settings, const std::string& place);
/// Throws UserError where the method is a server's setting and the model is not behind an endpoint, and the reverse.
void require_server_entry(const experiment::ModelEntry& model, const experiment::ComponentEntry& method);
/// The server of an entry: its own, else the model's.
[[nodiscard]] ServerSettings server_of(const experiment::ModelEntry& model, const experiment::ComponentEntry& method);

}  // namespace kvarena::evaluate
