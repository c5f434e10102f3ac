#pragma once
// Our methods beside kvpress's presses in transformers, on the same prompts.

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/engine/foreign/transformers_engine.h"
#include "harness/evaluate/loaded_model.h"

namespace kvarena::cli {

/// Two entries of a config.
struct ParityPair {
  nlohmann::json method;  // for our engine; null: none restates the press
  nlohmann::json press;   // for theirs; null: full KV
};

/// Means over prompts, heads and steps. What one side lacks is NaN.
struct ParityRow {
  double kept_alike = 0;         // entries that both keep, of those that the side that keeps more keeps
  double between_nats = 0;       // KL from our logits to theirs, along our full KV's answer
  double loss_nats[2] = {0, 0};  // KL from full KV to the method, in our engine and in theirs
  double score[2] = {0, 0};      // of the free answers, by the workload's first metric
  double seconds[2] = {0, 0};    // of prompt, compression and free answer
  std::string failure[2];
};

struct ParityRun {
  evaluate::LoadedModel& model;
  TransformersEngine& engine;
  std::vector<evaluate::Request> requests;
  std::vector<ParityPair> pairs;                   // the first is full KV
  std::function<void(const ParityPair&)> on_pair;  // told of each before it runs
};

/// A row for each pair. A side that fails says why in its row, and the others go on.
[[nodiscard]] std::vector<ParityRow> run_parity(const ParityRun& run);

}  // namespace kvarena::cli
