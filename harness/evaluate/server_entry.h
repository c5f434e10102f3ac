#pragma once
// Entries "server" of a config's methods: settings of a server that a model is behind. They are labels of a server that
// somebody runs, or, with a command, of one that the run starts with them.

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/evaluate/completion_endpoint.h"
#include "harness/evaluate/server_process.h"
#include "harness/experiment/config.h"

namespace kvarena::evaluate {

inline constexpr const char* kServerEntry = "server";

/// Its parameters but "settings", an object of names and values, and "start", a list of words.
[[nodiscard]] std::vector<ParameterInfo> server_parameters();
/// Every problem of an entry, as check_method() has it.
[[nodiscard]] std::vector<std::string> check_server_entry(const nlohmann::json& settings, const std::string& place);
/// Throws UserError where the method is a server's setting and the model is not behind an endpoint, and the reverse.
void require_server_entry(const experiment::ModelEntry& model, const experiment::ComponentEntry& method);
/// The server of an entry: its own, else the model's.
[[nodiscard]] ServerSettings server_of(const experiment::ModelEntry& model, const experiment::ComponentEntry& method);

/// A command that starts a server.
struct ServerStart {
  std::vector<std::string> words;
  double ready_s = 0;  // longest time until it answers
};
/// The command of an entry that starts its server, with {port}, {model} (the checkpoint), {kvarena} (this program) and
/// each setting's {name} filled in, and a word "{settings}" as "--name value" of each.
[[nodiscard]] ServerStart start_of(const experiment::ModelEntry& model, const experiment::ComponentEntry& method,
                                   const std::filesystem::path& home);

/// Starts it and waits until it is ready. Throws UserError where it does not get so far, and where another server is at
/// its address.
[[nodiscard]] std::unique_ptr<ServerProcess> start_server(const experiment::ModelEntry& model,
                                                          const experiment::ComponentEntry& method,
                                                          const std::filesystem::path& home);

}  // namespace kvarena::evaluate
