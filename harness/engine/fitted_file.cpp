#include "harness/engine/fitted_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"
#include "harness/core/own_files.h"
#include "harness/engine/array_file.h"
#include "harness/method/registry.h"
#include "harness/model/safetensors.h"
#include "kernels/common/dtype.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

float rounded(float value) { return kernels::bf16_to_f32(kernels::f32_to_bf16(value)); }

bool fits_bf16(const FittedTensor& tensor) {
  return std::ranges::all_of(tensor.values, [](float value) { return rounded(value) == value; });
}

std::string content_hash(const FittedWeights& weights) {
  std::string text;
  for (const auto& [name, tensor] : weights.tensors) {
    text += fmt::format("{} [{}]\n", name, fmt::join(tensor.shape, ", "));
    text.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * sizeof(float));
  }
  return sha256(text);
}

/// Files called `stem`.safetensors in the folders of models, sorted.
std::vector<fs::path> candidates(const std::string& stem, const std::vector<fs::path>& folders) {
  std::vector<fs::path> found;
  for (const fs::path& folder : folders) {
    if (!fs::is_directory(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const fs::path file = entry.path() / (stem + ".safetensors");
      if (fs::is_regular_file(file)) found.push_back(file);
    }
  }
  std::ranges::sort(found);
  return found;
}

/// A published table of one number a head: a line a layer, numbers separated by blanks or tabs.
FittedWeights read_table(const fs::path& file) {
  FittedTensor table;
  std::istringstream lines(read_file(file));
  int64_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    const size_t before = table.values.size();
    for (float value = 0; numbers >> value;) table.values.push_back(value);
    const auto columns = static_cast<int64_t>(table.values.size() - before);
    if (columns == 0 && numbers.eof()) continue;
    if (rows++ == 0) table.shape = {0, columns};
    if (columns == 0 || columns != table.shape[1] || !numbers.eof()) {
      fail({.place = fmt::format("{}: line {}", file.string(), rows),
            .found = fmt::format("\"{}\"", line.substr(0, 60)),
            .expected = "as many numbers as in the first line"});
    }
  }
  if (rows == 0) fail({.place = file.string(), .found = "no numbers", .expected = "a line a layer"});
  table.shape[0] = rows;
  return {.place = file.string(), .tensors = {{file.stem().string(), std::move(table)}}, .metadata = {}};
}

/// Writes a config's values as text, nested objects' keys behind a dot.
void flatten(const nlohmann::json& value, const std::string& key, std::map<std::string, std::string>& into) {
  if (value.is_object()) {
    for (const auto& [name, part] : value.items()) flatten(part, key.empty() ? name : key + "." + name, into);
  } else {
    into[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
}

template <typename Integer>
void widen(std::span<const std::byte> stored, std::vector<float>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Integer value = 0;
    std::memcpy(&value, stored.data() + i * sizeof value, sizeof value);
    out[i] = static_cast<float>(value);
  }
}

/// A tensor as floats, which token ids fit exactly. Whether it is of a type that can be read.
bool read_tensor(const Checkpoint& checkpoint, const TensorInfo& info, FittedTensor& tensor) {
  tensor.shape = info.shape;
  tensor.values.resize(static_cast<size_t>(info.elements()));
  if (info.type != TensorType::other) {
    checkpoint.read_f32(info.name, tensor.values);
  } else if (info.stored_type == "I64") {
    widen<int64_t>(checkpoint.raw(info.name), tensor.values);
  } else if (info.stored_type == "I32") {
    widen<int32_t>(checkpoint.raw(info.name), tensor.values);
  } else if (info.stored_type == "BOOL") {
    widen<uint8_t>(checkpoint.raw(info.name), tensor.values);
  } else {
    return false;
  }
  return true;
}

FittedWeights read_folder(const fs::path& folder, const std::vector<std::string>& wanted) {
  if (!fs::exists(folder / "model.safetensors") && fs::exists(folder / "pytorch_model.bin")) {
    fail({.place = folder.string(),
          .found = "pytorch_model.bin alone",
          .expected = "model.safetensors",
          .action = "save the tensors with safetensors.torch.save_file under their own names"});
  }
  FittedWeights weights{.place = folder.string(), .tensors = {}, .metadata = {}};
  const nlohmann::json config = nlohmann::json::parse(read_file(folder / "config.json"), nullptr, false);
  if (config.is_discarded()) {
    fail({.place = (folder / "config.json").string(), .found = "text that is no JSON", .expected = "the config"});
  }
  flatten(config, "", weights.metadata);
  const auto checkpoint = open_checkpoint(folder);
  for (const TensorInfo& info : checkpoint->tensors()) {
    const auto ends = [&](const std::string& name) { return info.name.ends_with(name); };
    if (!wanted.empty() && std::ranges::none_of(wanted, ends)) continue;
    FittedTensor tensor;
    if (read_tensor(*checkpoint, info, tensor)) weights.tensors[info.name] = std::move(tensor);
  }
  return weights;
}

/// The weights at a request's path. Throws UserError where others publish the kind as checkpoints, which fit other
/// models' shapes too, and these weights do not say by a fingerprint that they are the model's.
FittedWeights read_named(const FittedRequest& request, const std::string& model_name, const std::string& fingerprint) {
  const fs::path path = fs::exists(request.path) ? fs::path(request.path) : find_model(request.path);
  if (request.wanted.empty()) return read_fitted(path);
  const bool raw = fs::is_directory(path);
  FittedWeights weights =
      raw ? FittedWeights{.place = path.string(), .tensors = {}, .metadata = {}} : read_fitted(path);
  const std::string made_for = weights.metadata[kFittedFingerprint];
  if (made_for == fingerprint) return weights;
  fail({.place = weights.place,
        .found = made_for.empty() ? std::string("weights that do not say which model they are for")
                                  : fmt::format("weights for {} (fingerprint {})", weights.metadata["model"],
                                                made_for.substr(0, 12)),
        .expected = fmt::format("weights for {} (fingerprint {})", model_name, fingerprint.substr(0, 12)),
        .action = fmt::format("take a checkpoint made for this model over with `{} --from {} --model ...`, and name "
                              "the file that this writes, or none",
                              fit_command(request), raw ? request.path : "FOLDER")});
}

}  // namespace

FittedWeights read_fitted(const fs::path& file, const std::vector<std::string>& wanted) {
  if (fs::is_directory(file)) return read_folder(file, wanted);
  if (file.extension() == ".tsv") return read_table(file);
  if (file.extension() == ".npy") return {.place = file.string(), .tensors = {{"", read_npy(file)}}, .metadata = {}};
  if (file.extension() == ".pth")
    return {.place = file.string(), .tensors = {{"", read_torch_tensor(file)}}, .metadata = {}};
  const auto checkpoint = open_safetensors(file);
  FittedWeights weights{.place = file.string(), .metadata = safetensors_metadata(file)};
  for (const TensorInfo& info : checkpoint->tensors()) {
    FittedTensor& tensor = weights.tensors[info.name];
    tensor.shape = info.shape;
    tensor.values.resize(static_cast<size_t>(info.elements()));
    checkpoint->read_f32(info.name, tensor.values);
  }
  const auto expected = weights.metadata.find(kFittedContent);
  if (expected != weights.metadata.end() && expected->second != content_hash(weights)) {
    fail({.place = file.string(),
          .found = "content with another hash than its header says",
          .expected = "the weights as they were fitted",
          .action = "The file is damaged: copy it again, or fit it again with `kvarena fit`."});
  }
  return weights;
}

void write_fitted(const fs::path& file, FittedWeights weights, bool bf16) {
  for (auto& [name, tensor] : weights.tensors) {
    for (float& value : tensor.values) {
      if (bf16) value = rounded(value);
    }
  }
  weights.metadata[kFittedContent] = content_hash(weights);
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : weights.tensors) {
    tensors.push_back({.name = name, .shape = tensor.shape, .values = tensor.values, .bf16 = fits_bf16(tensor)});
  }
  std::ranges::stable_partition(tensors, [](const TensorToWrite& tensor) { return !tensor.bf16; });  // keeps alignment
  write_safetensors(file, tensors, weights.metadata);
}

fs::path project_fitted_folder() { return own_file("configs/fitted"); }

std::optional<fs::path> own_fitted(const FittedRequest& request, const std::string& fingerprint,
                                   const std::vector<fs::path>& folders) {
  for (const fs::path& file : candidates(request.stem(), folders)) {
    const auto metadata = safetensors_metadata(file);
    const auto found = metadata.find(kFittedFingerprint);
    if (found != metadata.end() && found->second == fingerprint) return file;
  }
  return {};
}

std::string fit_command(const FittedRequest& request) {
  const std::string command = "kvarena fit " + request.method;
  for (const ParameterInfo& setting : find_method(request.method)->parameters()) {
    const bool chooses = std::ranges::find(setting.choices, request.variant) != setting.choices.end();
    if (chooses) return fmt::format("{}:{}={}", command, setting.name, request.variant);
  }
  return command;
}

FittedWeights find_fitted(const FittedRequest& request, const std::string& model_name, const std::string& fingerprint,
                          const std::vector<fs::path>& folders) {
  if (!request.path.empty()) return read_named(request, model_name, fingerprint);
  if (const auto own = own_fitted(request, fingerprint, folders)) return read_fitted(*own);
  const std::string stem = request.stem();
  const size_t files = candidates(stem, folders).size();
  std::vector<std::string> looked;
  for (const fs::path& folder : folders) looked.push_back((folder / "*" / (stem + ".safetensors")).string());
  fail({.place = request.method,
        .found = files == 0 ? std::string("no fitted weights")
                            : fmt::format("fitted weights of {} other model(s) only", files),
        .expected = fmt::format("weights fitted on {} (fingerprint {}) at {}", model_name, fingerprint.substr(0, 12),
                                fmt::join(looked, " or ")),
        .action = fmt::format("fit them with `{} --model ... --data ...`, or name a file in \"weights\"",
                              fit_command(request))});
}

}  // namespace kvarena
