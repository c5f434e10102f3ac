#pragma once
// Where models are: below KVARENA_HOME, in the cache of Hugging Face's hub, or anywhere by their path.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kvarena {

inline constexpr const char* kDefaultModel = "smollm2-135m";

/// $KVARENA_HOME, or ~/.cache/kvarena when that is not set. Throws UserError when neither it nor HOME is.
[[nodiscard]] std::filesystem::path kvarena_home();

/// The folder that a variable of the environment names, else one below the user's own; nothing where there is no HOME.
[[nodiscard]] std::optional<std::filesystem::path> user_folder(const char* variable, const char* below_home);

/// The hub's cache: $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub; "models--org--name" are its folders.
[[nodiscard]] std::optional<std::filesystem::path> hub_cache();
inline constexpr std::string_view kHubFolder = "models--";

/// Whether `model` can be a name on Hugging Face's hub: "org/name".
[[nodiscard]] bool is_hub_name(const std::string& model);

/// The snapshot of "org/name" that the hub's cache holds as its main revision, or of "org/name@revision"; nothing where
/// it holds none. A revision is a branch, a tag or a commit, of which the first characters are enough.
[[nodiscard]] std::optional<std::filesystem::path> hub_snapshot(const std::string& hub_name);

/// The folder or file of a model given as a path, by its name on the hub or by the name of a folder in
/// $KVARENA_HOME/models. A folder of the hub's cache stands for its snapshot. Throws UserError that says how to get it,
/// or which names there are, when it is absent.
[[nodiscard]] std::filesystem::path find_model(const std::string& model);

/// A model of this machine.
struct FoundModel {
  std::string name;  // as --model takes it
  std::string place;
  std::filesystem::path path;
};

/// Models of KVARENA_HOME, of the hub's cache, of llama.cpp ($LLAMA_CACHE or ~/.cache/llama.cpp) and of Ollama
/// ($OLLAMA_MODELS or ~/.ollama/models), by place and name. Folders that are not there hold none.
[[nodiscard]] std::vector<FoundModel> found_models();

/// Name of the model at a path: "x" of ".../x" and ".../x.gguf", "name" of ".../models--org--name/snapshots/...".
[[nodiscard]] std::string model_name(const std::filesystem::path& path);

}  // namespace kvarena
