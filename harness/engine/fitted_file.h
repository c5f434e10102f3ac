#pragma once
// Artifacts of fitted methods on disk: safetensors with provenance in the header and a hash over the content.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/method/fitted.h"

namespace kvarena {

/// Metadata keys that every artifact carries.
inline constexpr const char* kFittedMethod = "method";            // stem of the request: "name" or "name-variant"
inline constexpr const char* kFittedFingerprint = "fingerprint";  // of the model's weights
inline constexpr const char* kFittedContent = "content_sha256";   // over names, shapes and stored values

/// Reads an artifact or a published file: safetensors, or a .tsv of one number a head (a line a layer), which becomes a
/// tensor named as the file, or a .npy or .pth of one array, which answers to any name; of a checkpoint's folder
/// (config.json, safetensors) the tensors that `wanted` asks for (FittedRequest), integers and booleans as floats.
/// Throws UserError naming the file: cut short, damaged, not finite, or (where the file carries kFittedContent) with
/// content other than what was written.
[[nodiscard]] FittedWeights read_fitted(const std::filesystem::path& file, const std::vector<std::string>& wanted = {});

/// Writes weights with their metadata and kFittedContent. `bf16` rounds the values; a tensor is stored as bf16 where
/// that loses nothing.
void write_fitted(const std::filesystem::path& file, FittedWeights weights, bool bf16);

/// The folder of artifacts that come with the source.
[[nodiscard]] std::filesystem::path project_fitted_folder();

/// The artifact that the folders hold for a model: STEM.safetensors below one of them (each holds a folder a model)
/// whose fingerprint is the model's.
[[nodiscard]] std::optional<std::filesystem::path> own_fitted(const FittedRequest& request,
                                                              const std::string& fingerprint,
                                                              const std::vector<std::filesystem::path>& folders);

/// "kvarena fit METHOD:setting=variant", which makes what a request asks for.
[[nodiscard]] std::string fit_command(const FittedRequest& request);

/// The artifact that a request asks for: its path, or own_fitted(). Throws UserError that says how to fit or import one
/// when there is none, or when the path's is another model's or a bare checkpoint (FittedRequest::wanted).
[[nodiscard]] FittedWeights find_fitted(const FittedRequest& request, const std::string& model_name,
                                        const std::string& fingerprint,
                                        const std::vector<std::filesystem::path>& folders);

}  // namespace kvarena
