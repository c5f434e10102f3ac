#pragma once
// The sentence encoder of the cache folder for metrics that compare answers by meaning.

#include <filesystem>

namespace kvarena::evaluate {

/// Makes metrics embed with `home`/models/all-minilm-l6-v2, which is loaded when it is first needed.
void use_local_embedder(const std::filesystem::path& home);

}  // namespace kvarena::evaluate
