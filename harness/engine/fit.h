#pragma once
// Fitting a method's weights on a model.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/core/progress.h"
#include "harness/engine/session/prefill.h"
#include "harness/method/fitter.h"

namespace kvarena {

struct FitTask {
  std::string method;                       // name in the registry
  std::vector<std::vector<int32_t>> texts;  // each is read alone, cut to the fitter's sample_tokens
  uint64_t seed = 1;
  std::filesystem::path output;                 // the artifact; work in progress lies in OUTPUT.partial
  std::map<std::string, std::string> metadata;  // provenance beside what the driver knows: data, settings
};

/// Runs the fit, or goes on with one that was interrupted, and returns the artifact as written. A step is a text or a
/// layer. Work in progress of another task (texts, seed, model, settings) is thrown away. Throws UserError when there
/// are no texts, when a file cannot be written, or from the prefill.
FittedWeights fit(Transformer& model, const std::shared_ptr<const ModelFacts>& facts, const Fitter& fitter,
                  const FitTask& task, Progress& progress);

/// Makes an artifact for a model of a checkpoint that others publish, by what find_model() takes: the tensors that the
/// fitter's artifact() wants, bits unchanged, with config.json in the metadata. Returns it as written. Throws UserError
/// when the checkpoint cannot be read, holds none of these or has other sizes than the model, or nothing of the kind is
/// published.
FittedWeights import_fitted(const ModelFacts& facts, const Fitter& fitter, const std::string& checkpoint,
                            const std::filesystem::path& output);

}  // namespace kvarena
