#pragma once
// A low-rank adapter of the small random decoder in PEFT's layout, drawn as tests/golden/learned_kvpress.py draws it.

#include <filesystem>
#include <nlohmann/json.hpp>

namespace kvarena::testing {

/// Writes the adapter of every projection of tiny_model(1), whose folder `base` becomes, and `tokens` rows that
/// restore; none: the adapter alone. `changed` overrides keys of adapter_config.json.
void write_tiny_adapter(const std::filesystem::path& folder, const std::filesystem::path& base, int64_t tokens,
                        const nlohmann::json& changed = nlohmann::json::object());

}  // namespace kvarena::testing
