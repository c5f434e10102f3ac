// kvarena fit METHOD: learns or calibrates a method's weights for a model.

#include "harness/fit/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "datasets/texts/essays.h"
#include "datasets/workload.h"
#include "harness/cli/commands.h"
#include "harness/cli/method_spec.h"
#include "harness/cli/model_input.h"
#include "harness/cli/terminal.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/judge/loaded_model.h"
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
  std::optional<fs::path> output;
  bool quiet = false;

  void declare(OptionSet& o) {
    o.positional("METHOD", method).help("a method with weights, its settings behind a colon: NAME:kind=linear");
    model.declare(o);
    o.option("data", "DATA", data)
        .help("texts to read: a workload's name, a text file, a folder of .txt files, or essays");
    o.option("samples", "N", samples).help("so many texts");
    o.option("seed", "N", seed).help("of everything that is drawn");
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

/// Pieces of one long text, each long enough for a sample (a token has 8 bytes at most, nearly always).
std::vector<std::string> pieces(const std::string& text, int64_t count, int64_t tokens) {
  std::vector<std::string> texts;
  const size_t bytes = static_cast<size_t>(tokens) * 8;
  for (size_t at = 0; at < text.size() && static_cast<int64_t>(texts.size()) < count; at += bytes) {
    texts.push_back(text.substr(at, bytes));
  }
  return texts;
}

std::vector<std::string> texts_of_files(const fs::path& path, int64_t count, int64_t tokens) {
  if (!fs::is_directory(path)) return pieces(read_file(path), count, tokens);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<std::string> texts;
  for (const fs::path& file : files) {
    const auto part = pieces(read_file(file), count - static_cast<int64_t>(texts.size()), tokens);
    texts.insert(texts.end(), part.begin(), part.end());
  }
  return texts;
}

std::vector<std::string> texts_of_workload(const std::string& name, int64_t count, const OpenedModel& model) {
  const judge::ModelTokens counter(*model.tokenizer);
  const auto workload = make_workload(name, "{}", "--data");
  SampleReader reader = workload->open({.tokens = &counter, .max_prompt_tokens = model.config.max_position / 2});
  std::vector<std::string> texts;
  while (static_cast<int64_t>(texts.size()) < count) {
    const auto sample = reader.next();
    if (!sample) break;
    std::string& text = texts.emplace_back();
    for (const Message& message : sample->messages) text += message.content;
  }
  return texts;
}

std::vector<std::string> texts_of(const Options& options, const OpenedModel& model, int64_t tokens) {
  if (options.data == "essays") {
    std::vector<std::string> texts;
    const auto seed = static_cast<uint64_t>(options.seed);
    for (int64_t i = 0; i < options.samples; ++i) {
      texts.push_back(write_essays(seed * 1'000'003 + static_cast<uint64_t>(i), static_cast<size_t>(tokens) * 8));
    }
    return texts;
  }
  if (fs::exists(options.data)) return texts_of_files(options.data, options.samples, tokens);
  return texts_of_workload(options.data, options.samples, model);
}

fs::path output_of(const Options& options, const Fitter& fitter) {
  if (options.output) return *options.output;
  const std::string file = fitter.artifact().stem() + ".safetensors";
  return kvarena_home() / "fitted" / find_model(options.model.model).stem() / file;
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
  FitTask task{.seed = static_cast<uint64_t>(options.seed), .output = output_of(options, *fitter)};
  std::string all;
  for (const std::string& text : texts_of(options, model, fitter->sample_tokens())) {
    task.texts.push_back(model.tokenizer->encode(text, {.add_special = false}));
    all += text;
  }
  task.metadata = {{"data", fs::exists(options.data) ? fs::path(options.data).filename().string() : options.data},
                   {"data_sha256", sha256(all)},
                   {"settings", asked.dump()},
                   {"dtype", options.model.dtype}};

  Transformer transformer = load_weights(model, options.model);
  Progress progress({.style = options.quiet ? ProgressOptions::Style::quiet : ProgressOptions::Style::automatic});
  const FittedWeights weights = fit(transformer, facts_of(model, transformer), *fitter, task, progress);
  print(fmt::format("{}: {} tensors, {} bytes\n", weights.place, weights.tensors.size(), fs::file_size(task.output)));
  return 0;
}

}  // namespace

Command fit_command() {
  return make_command<Options>(
      {.name = "fit",
       .summary = "learn or calibrate a method's weights for a model",
       .description = "An interrupted fit goes on where it stopped when the same command is given again. The artifact "
                      "says which model, data and seed it was made from.",
       .examples = {{"kvarena fit METHOD --samples 32", "for the default model, from generated essays"}}},
      run);
}

}  // namespace kvarena::cli
