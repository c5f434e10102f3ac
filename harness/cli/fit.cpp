// kvarena fit METHOD: learns or calibrates a method's weights for a model.

#include "harness/engine/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/method_spec.h"
#include "harness/cli/model_input.h"
#include "harness/cli/texts.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/page.h"
#include "harness/method/registry.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct Options {
  std::string method;
  ModelOptions model;
  std::string data = "essays";
  int64_t samples = 24;
  int64_t seed = 1;
  std::optional<std::string> from;
  std::optional<fs::path> output;
  bool quiet = false;

  void declare(OptionSet& o) {
    o.positional("METHOD", method).help("a method with weights, its settings behind a colon: NAME:kind=linear");
    model.declare(o);
    o.option("data", "DATA", data)
        .help("texts to read: a workload's name, a text file, a folder of .txt files, or essays");
    o.option("samples", "N", samples).help("so many texts");
    o.option("seed", "N", seed).help("of everything that is drawn");
    o.option("from", "FOLDER", from)
        .help(
            "take over a checkpoint that others publish in place of a fit: a drafter of this model, for its head; or "
            "org/name of Hugging Face's cache");
    o.option("output", "FILE", output)
        .help("the artifact")
        .default_text("$KVARENA_HOME/fitted/MODEL/METHOD.safetensors, where methods find it");
    o.flag("quiet", quiet).help("no progress");
  }
  void check() const {
    if (samples < 1) fail({.place = "--samples", .found = std::to_string(samples), .expected = "at least 1"});
  }
};

/// A fit needs no budget, but a method's settings do.
std::unique_ptr<Method> method_to_fit(const json& asked) {
  json spec = asked;
  const MethodEntry* entry = find_method(asked.value("name", ""));
  if (entry != nullptr) {
    for (const ParameterInfo& parameter : entry->parameters()) {
      const bool budget = spec.contains("keep") || spec.contains("tokens") || spec.contains("bytes");
      if (parameter.name == "keep" && !budget) spec["keep"] = 1.0;
    }
  }
  return make_method(spec, "METHOD");
}

std::vector<std::string> names_with_weights() {
  std::vector<std::string> names;
  for (const MethodEntry& entry : method_registry()) {
    if (entry.create()->fitter() != nullptr) names.push_back(entry.info.name);
  }
  return names;
}

fs::path output_of(const Options& options, const Fitter& fitter) {
  if (options.output) return *options.output;
  const std::string file = fitter.artifact().stem() + ".safetensors";
  return kvarena_home() / "fitted" / model_name(find_model(options.model.model)) / file;
}

void say(const FittedWeights& made) {
  print(fmt::format("{}: {} tensors, {} bytes\n", made.place, made.tensors.size(), fs::file_size(made.place)));
}

int run(const Options& options) {
  options.check();
  const json asked = parse_method_spec(options.method, "METHOD");
  const auto method = method_to_fit(asked);
  const auto name = asked["name"].get<std::string>();
  const auto fitter = method->fitter();
  if (fitter == nullptr) {
    fail({.place = "METHOD",
          .found = fmt::format("\"{}\", which has no weights to fit", name),
          .expected = fmt::format("one of: {}", fmt::join(names_with_weights(), ", "))});
  }

  const OpenedModel model = open_chosen(options.model);
  if (options.from) {
    const Transformer transformer = load_weights(model, options.model);
    say(import_fitted(*facts_of(model, transformer, options.model), *fitter, *options.from,
                      output_of(options, *fitter)));
    return 0;
  }
  FitTask task{.seed = static_cast<uint64_t>(options.seed), .output = output_of(options, *fitter)};
  std::string all;
  const TextRequest wanted{
      .data = options.data, .count = options.samples, .tokens = fitter->sample_tokens(), .seed = options.seed};
  for (const std::string& text : read_texts(wanted, model)) {
    task.texts.push_back(model.tokenizer->encode(text, {.add_special = false}));
    all += text;
  }
  task.metadata = {{"data", fs::exists(options.data) ? fs::path(options.data).filename().string() : options.data},
                   {"data_sha256", sha256(all)},
                   {"settings", asked.dump()},
                   {"dtype", options.model.dtype}};

  Transformer transformer = load_weights(model, options.model);
  Progress progress({.style = options.quiet ? ProgressOptions::Style::quiet : ProgressOptions::Style::automatic});
  say(fit(transformer, facts_of(model, transformer, options.model), *fitter, task, progress));
  return 0;
}

}  // namespace

Command fit_command() {
  return make_command<Options>(
      {.name = "fit",
       .summary = "learn or calibrate a method's weights for a model",
       .description = "An interrupted fit goes on where it stopped when the same command is given again. The artifact "
                      "says which model, data and seed it was made from.",
       .examples = {{"kvarena fit METHOD --samples 32", "for the default model, from generated essays"},
                    {"kvarena fit METHOD --from FOLDER --model NAME",
                     "an EAGLE-3 drafter of the model, of which a method makes its head"}}},
      run);
}

}  // namespace kvarena::cli
