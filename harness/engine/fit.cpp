#include "harness/engine/fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"
#include "harness/engine/fitted_file.h"
#include "harness/method/drafter_file.h"
#include "harness/method/layer_view.h"
#include "harness/model/safetensors.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTaskKey = "fit_task";  // hash of everything that the result depends on

std::string layer_prefix(int64_t layer) { return fmt::format("layers.{}.", layer); }

/// Writes weights to their place as a model's artifact, and reads it.
FittedWeights write_artifact(FittedWeights weights, const Fitter& fitter, const ModelFacts& facts, bool bf16) {
  const fs::path file = weights.place;
  weights.metadata[kFittedMethod] = fitter.artifact().stem();
  weights.metadata[kFittedFingerprint] = facts.fingerprint;
  weights.metadata["model"] = facts.name;
  if (file.has_parent_path()) fs::create_directories(file.parent_path());
  write_fitted(file, std::move(weights), bf16);
  return read_fitted(file);
}

/// One interrupted or running fit.
class Fit {
 public:
  Fit(Transformer& model, const std::shared_ptr<const ModelFacts>& facts, const Fitter& fitter, const FitTask& task)
      : model_(&model), facts_(facts), fitter_(&fitter), task_(&task), work_(task.output.string() + ".partial") {
    std::string all = fmt::format("{}\n{}\n{}\n{}\n", fitter.artifact().stem(), facts->fingerprint, task.seed,
                                  fitter.sample_tokens());
    for (const auto& [key, value] : task.metadata) all += fmt::format("{}={}\n", key, value);
    for (const auto& text : task.texts) all += fmt::format("{}\n", fmt::join(text, " "));
    key_ = sha256(all);
    fs::create_directories(work_);
  }

  [[nodiscard]] fs::path record(size_t text) const { return work_ / fmt::format("text-{:05}.safetensors", text); }
  [[nodiscard]] fs::path solved(int64_t layer) const { return work_ / fmt::format("layer-{:05}.safetensors", layer); }
  /// Whether a step's file is there and belongs to this task.
  [[nodiscard]] bool done(const fs::path& file) const {
    if (!fs::exists(file)) return false;
    const auto metadata = safetensors_metadata(file);
    const auto found = metadata.find(kTaskKey);
    return found != metadata.end() && found->second == key_;
  }

  void read_text(size_t number) const {
    const std::vector<int32_t>& text = task_->texts[number];
    std::vector<int32_t> tokens = facts_->text.before_user;
    const auto count = std::min<size_t>(text.size(), static_cast<size_t>(fitter_->sample_tokens()));
    tokens.insert(tokens.end(), text.begin(), text.begin() + static_cast<int64_t>(count));
    Prefill prompt = prefill(*model_, tokens, fitter_->needs(), kPrefillChunk, facts_);
    FittedTensors all;
    std::vector<FittedTensors> parts;
    Activity activity;
    const auto layers = static_cast<int64_t>(prompt.cache.layers.size());
    for (int64_t layer = 0; layer < layers; ++layer) {
      const LayerContext context{.layer = layer,
                                 .layers = layers,
                                 .cache = prompt.cache.layers[layer],
                                 .activity = activity,
                                 .prompt_tokens = static_cast<int64_t>(tokens.size()),
                                 .model = facts_.get(),
                                 .prompt = tokens};
      const RandomStream draws(task_->seed, fmt::format("fit text {} layer {}", number, fitter_->joint() ? 0 : layer));
      parts.push_back(fitter_->collect(LayerView(context, &prompt.observations[layer]), draws));
    }
    if (fitter_->joint()) parts = {fitter_->join(std::move(parts))};
    for (size_t layer = 0; layer < parts.size(); ++layer) {
      for (auto& [name, tensor] : parts[layer])
        all[layer_prefix(static_cast<int64_t>(layer)) + name] = std::move(tensor);
    }
    store(record(number), std::move(all));
  }

  void solve_layer(int64_t layer) const {
    std::vector<FittedTensors> records;
    for (size_t text = 0; text < task_->texts.size(); ++text) records.push_back(load(record(text), layer));
    const RandomStream draws(task_->seed, fmt::format("fit layer {}", layer));
    const FittedTensors weights = fitter_->solve(records, draws);
    FittedTensors named;
    for (const auto& [name, tensor] : weights) named[layer_prefix(layer) + name] = tensor;
    store(solved(layer), std::move(named));
  }

  [[nodiscard]] FittedWeights finish(int64_t layers) const {
    std::vector<FittedTensors> parts;
    for (int64_t layer = 0; layer < layers; ++layer) parts.push_back(load(solved(layer), layer));
    FittedWeights weights{
        .place = task_->output.string(), .tensors = fitter_->assemble(parts), .metadata = task_->metadata};
    weights.metadata["seed"] = std::to_string(task_->seed);
    weights.metadata["texts"] = std::to_string(task_->texts.size());
    FittedWeights written = write_artifact(std::move(weights), *fitter_, *facts_, fitter_->half());
    fs::remove_all(work_);
    return written;
  }

 private:
  void store(const fs::path& file, FittedTensors tensors) const {
    write_fitted(file, {.place = file.string(), .tensors = std::move(tensors), .metadata = {{kTaskKey, key_}}}, false);
  }

  /// One layer's tensors of a step's file, under their own names.
  [[nodiscard]] static FittedTensors load(const fs::path& file, int64_t layer) {
    const auto checkpoint = open_safetensors(file);
    const std::string prefix = layer_prefix(layer);
    FittedTensors tensors;
    for (const TensorInfo& info : checkpoint->tensors()) {
      if (!info.name.starts_with(prefix)) continue;
      FittedTensor& tensor = tensors[info.name.substr(prefix.size())];
      tensor.shape = info.shape;
      tensor.values.resize(static_cast<size_t>(info.elements()));
      checkpoint->read_f32(info.name, tensor.values);
    }
    return tensors;
  }

  Transformer* model_;
  std::shared_ptr<const ModelFacts> facts_;
  const Fitter* fitter_;
  const FitTask* task_;
  fs::path work_;
  std::string key_;
};

}  // namespace

FittedWeights fit(Transformer& model, const std::shared_ptr<const ModelFacts>& facts, const Fitter& fitter,
                  const FitTask& task, Progress& progress) {
  if (task.texts.empty()) fail({.place = "fit", .found = "no texts", .expected = "at least one to read"});
  const Fit work(model, facts, fitter, task);
  const int64_t layers = fitter.joint() ? 1 : model.config().cached_layers();  // that are solved
  const auto texts = static_cast<int64_t>(task.texts.size());

  std::vector<size_t> unread;
  for (size_t text = 0; text < task.texts.size(); ++text) {
    if (!work.done(work.record(text))) unread.push_back(text);
  }
  std::vector<int64_t> unsolved;
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (!unread.empty() || !work.done(work.solved(layer))) unsolved.push_back(layer);
  }
  const auto left = static_cast<int64_t>(unread.size() + unsolved.size());
  progress.begin(fmt::format("fit {}", fitter.artifact().stem()), texts + layers, texts + layers - left);
  for (const size_t text : unread) {
    progress.note(fmt::format("text {} of {}", text + 1, texts));
    work.read_text(text);
    progress.advance();
  }
  for (const int64_t layer : unsolved) {
    progress.note(fmt::format("layer {} of {}", layer + 1, layers));
    work.solve_layer(layer);
    progress.advance();
  }
  progress.finish();
  return work.finish(layers);
}

FittedWeights import_fitted(const ModelFacts& facts, const Fitter& fitter, const std::string& checkpoint,
                            const fs::path& output) {
  const FittedRequest artifact = fitter.artifact();
  if (artifact.wanted.empty()) {
    fail({.place = checkpoint,
          .found = fmt::format("weights for {}", artifact.stem()),
          .expected = "a method whose weights others publish as a checkpoint",
          .action = "fit them from texts"});
  }
  const fs::path folder = find_model(checkpoint);
  if (!fs::is_directory(folder)) {
    fail({.place = folder.string(), .found = "no folder", .expected = "config.json and model.safetensors in one"});
  }
  FittedWeights weights = read_fitted(folder, artifact.wanted);
  if (weights.tensors.empty()) {
    fail({.place = folder.string(),
          .found = "none of the tensors that are wanted",
          .expected = fmt::format("names that end in {}", fmt::join(artifact.wanted, ", "))});
  }
  DrafterFile(weights).require_sizes_of(facts);
  weights.metadata["imported"] = model_name(folder);
  weights.place = output.string();
  return write_artifact(std::move(weights), fitter, facts, /*bf16=*/false);
}

}  // namespace kvarena
