// Granite 3 and 4, dense: Llama with factors on embeddings, scores, residuals and logits.

#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/model/architectures/families.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

/// Scores are multiplied by `factor`.
void scale_scores(double factor, const std::string& place, ModelConfig& config) {
  if (!(factor > 0)) {
    fail({.place = place, .found = fmt::format("a factor {} on scores", factor), .expected = "a positive number"});
  }
  config.query_scalar = 1 / (factor * factor);
}

void read(const JsonSection& root, ModelConfig& config) {
  read_attention_biases(root, false, config);
  config.mlp_bias = root.boolean("mlp_bias", false);
  config.embedding_scale = root.number("embedding_multiplier", 1.0);
  config.residual_scale = root.number("residual_multiplier", 1.0);
  config.logit_scale = 1 / root.number("logits_scaling", 1.0);
  scale_scores(root.number("attention_multiplier", 1.0), root.place(), config);
}

void read_gguf(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
  config.embedding_scale = file.find_float(prefix + ".embedding_scale").value_or(1.0);
  config.residual_scale = file.find_float(prefix + ".residual_scale").value_or(1.0);
  config.logit_scale = 1 / file.find_float(prefix + ".logit_scale").value_or(1.0);
  if (const std::optional<double> factor = file.find_float(prefix + ".attention.scale")) {
    scale_scores(*factor, file.path().string(), config);
  }
}

}  // namespace

const Architecture kGranite{
    .name = "granite", .gguf = "granite", .read = read, .read_gguf = read_gguf, .gguf_pairs = true};

}  // namespace kvarena
