// kvarena inspect: what a method keeps, selects and weighs on one prompt.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/inspect_picture.h"
#include "harness/cli/inspection.h"
#include "harness/cli/method_spec.h"
#include "harness/cli/model_input.h"
#include "harness/cli/registry_text.h"
#include "harness/cli/top_tokens.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "harness/core/page.h"
#include "harness/method/verifier.h"
#include "metrics/stored_metrics.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

struct Options {
  ModelOptions model;
  PromptOptions prompt;
  std::string method;
  int64_t steps = 4;
  int64_t top = 5;
  std::optional<std::filesystem::path> output;
  std::optional<std::filesystem::path> picture;

  void declare(OptionSet& o) {
    o.option("method", "METHOD", method).help("JSON or NAME:key=value,...").required();
    prompt.declare(o);
    model.declare(o);
    o.option("steps", "N", steps).help("tokens decoded greedily under the method");
    o.option("top", "N", top).help("so many of the likeliest next tokens of each step");
    o.option("output", "FILE", output).help("write the JSON here").default_text("standard output");
    o.option("picture", "FILE", picture).help("also draw which positions are kept: an SVG heat map");
  }

  void check() const {
    if (steps < 0) fail({.place = "--steps", .found = fmt::format("{}", steps), .expected = "0 or more"});
    if (picture && picture->extension() != ".svg") {
      fail({.place = "--picture",
            .found = fmt::format("\"{}\"", picture->string()),
            .expected = "a name that ends in .svg"});
    }
  }
};

json layer_json(const LayerInfo& layer) {
  json segments = json::array();
  for (const SegmentInfo& segment : layer.segments) {
    segments.push_back({{"form", segment.form}, {"bytes", segment.bytes}, {"entries", segment.entries}});
  }
  return {{"bytes", layer.bytes},
          {"index_bytes", layer.index_bytes},
          {"segments", segments},
          {"positions", layer.positions}};
}

json step_json(const StepInfo& step, int64_t top, const Tokenizer& tokenizer) {
  json result{{"token", step.token},
              {"text", tokenizer.decode(std::vector<int32_t>{step.token}, {.skip_special = false})},
              {"attention_mass_kept", step.mass},
              {"top", top_tokens(step.logits, top, tokenizer)}};
  bool selected = false;
  for (const auto& layer : step.selected) selected = selected || !layer.empty();
  if (selected) result["selected"] = step.selected;
  return result;
}

json inspection_json(const Inspection& inspection, const Options& options, const Tokenizer& tokenizer) {
  const Activity& activity = inspection.activity;
  json layers = json::array();
  for (const LayerInfo& layer : inspection.layers) layers.push_back(layer_json(layer));
  for (size_t layer = 0; layer < inspection.prompt.size(); ++layer) {
    const PromptAttention& prompt = inspection.prompt[layer];
    layers[layer]["prompt"] = {{"computed", prompt.computed}, {"attention_mass_kept", prompt.kept}};
  }
  json steps = json::array();
  for (const StepInfo& step : inspection.steps) steps.push_back(step_json(step, options.top, tokenizer));
  return {{metrics::kResidentBytes.name, inspection.resident_bytes},
          {"full_bytes", inspection.full_bytes},
          {metrics::kStateBytes.name, inspection.state_bytes},
          {"activity",
           {{"entries_dropped", activity.entries_dropped},
            {"entries_packed", activity.entries_packed},
            {"entries_skipped", activity.entries_skipped},
            {"tokens_reused", activity.tokens_reused}}},
          {"layers", layers},
          {"steps", steps}};
}

/// A verifier answers as full KV does; what there is to see is the cache that drafts.
Nested<Method> compressor_of(const Method& method) {
  if (method.verifier() == nullptr) return {};
  const Drafter drafter = method.verifier()->drafter();
  const auto* copy = std::get_if<CompressedCopy>(&drafter);
  if (copy == nullptr) {
    fail({.place = "--method",
          .found = "a verifier that drafts without a cache",
          .expected = "a method with a cache of its own"});
  }
  return copy->compressor;
}

int run(const Options& options) {
  options.check();
  const json asked = parse_method_spec(options.method, "--method");
  const auto whole = make_method(asked, "--method");
  const Nested<Method> compressor = compressor_of(*whole);
  const Method& method = compressor ? *compressor : *whole;

  const OpenedModel model = open_chosen(options.model);
  const Tokenizer& tokenizer = *model.tokenizer;
  const std::vector<int32_t> tokens = prompt_tokens(options.prompt, model);
  Transformer transformer = load_weights(model, options.model);
  const Prefill prompt =
      prefill(transformer, tokens, method.needs(), kPrefillChunk, facts_of(model, transformer, options.model));
  const Inspection inspection = inspect(transformer, prompt, method, options.steps);

  json result = inspection_json(inspection, options, tokenizer);
  result["model"] = model.config.name;
  result["method"] = asked;
  if (compressor) result["inspected"] = json::parse(compressor.settings());
  result["tokens"] = prompt.tokens;
  result["next"] = top_tokens(prompt.logits, options.top, tokenizer);
  const std::string text = fmt::format("{}\n", json_text(result));
  if (options.picture) {
    const std::string title =
        fmt::format("{} on {} tokens of {}", short_form(asked), prompt.tokens.size(), model.config.name);
    write_file(*options.picture, inspection_picture(inspection, static_cast<int64_t>(prompt.tokens.size()), title));
  }
  if (options.output) {
    write_file(*options.output, text);
  } else {
    print(text);
  }
  return 0;
}

}  // namespace

Command inspect_command() {
  const std::string method = example_method();
  return make_command<Options>(
      {.name = "inspect",
       .summary = "what a method keeps, selects and weighs on one prompt, by layer and head",
       .description =
           "Writes JSON: for each layer the segments with their bytes and the positions that each kv head holds after "
           "the prompt, and of a sparse prefill the share of the prompt's attention that it computes and keeps; for "
           "each decode step the selected positions (retrieval), the share of full-KV attention that falls on what "
           "the method attends to, and the likeliest next tokens. Of a verifier, the drafter's cache is shown.",
       .examples = {{fmt::format("kvarena inspect --prompt-file long.txt --method {}", method), "all of it as JSON"},
                    {fmt::format(
                         "kvarena inspect --prompt-file long.txt --method {} --output kept.json --picture kept.svg",
                         method),
                     "with a heat map of the kept positions"}}},
      run);
}

}  // namespace kvarena::cli
