#pragma once
// Inside the experiment folder: one entry with a "matrix" becomes one entry for each combination, each with a label.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kvarena::experiment {

/// One entry without "matrix": {"name": "snapkv", "matrix": {"keep": [0.25, 0.5]}} -> two objects with "keep". Keys
/// with dots reach into nested components ("drafter.keep"). Keys vary in alphabetical order, the last one fastest.
/// Problems are added as finished messages.
[[nodiscard]] std::vector<nlohmann::json> expand_matrix(const nlohmann::json& entry, const std::string& place,
                                                        std::vector<std::string>& problems);

/// "kivi bits=2", "vericache draft_length=25 drafter=kvzip(keep=0.2)": the name and what is set.
[[nodiscard]] std::string automatic_label(const std::string& name, const nlohmann::json& settings);

/// Whether a label written by the user tells a setting: holds {key}, or {outer} of a key "outer.inner".
[[nodiscard]] bool label_tells(const std::string& label, const std::string& key);

/// A label written by the user with {key} or {outer.key} replaced by the entry's values.
[[nodiscard]] std::string fill_label(const std::string& label, const nlohmann::json& settings, const std::string& place,
                                     std::vector<std::string>& problems);

}  // namespace kvarena::experiment
