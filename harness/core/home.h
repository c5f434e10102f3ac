#pragma once
// The folder of models: names on the command line stand for folders below KVARENA_HOME.

#include <filesystem>
#include <string>

namespace kvarena {

inline constexpr const char* kDefaultModel = "smollm2-135m";

/// $KVARENA_HOME, or ~/.cache/kvarena when that is not set. Throws UserError when neither it nor HOME is.
[[nodiscard]] std::filesystem::path kvarena_home();

/// The folder or file of a model given as a path (anything with a slash, or that exists) or by the name of a folder in
/// $KVARENA_HOME/models. Throws UserError that says how to get it, or which names there are, when it is absent.
[[nodiscard]] std::filesystem::path find_model(const std::string& model);

}  // namespace kvarena
