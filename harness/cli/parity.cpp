// kvarena parity: our methods beside kvpress's presses in transformers, on the same prompts.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>

#include "datasets/workload.h"
#include "harness/cli/commands.h"
#include "harness/cli/method_spec.h"
#include "harness/cli/parity_run.h"
#include "harness/cli/registry_text.h"
#include "harness/cli/worker_setup.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"
#include "harness/core/json_text.h"
#include "harness/core/markdown.h"
#include "harness/core/own_files.h"
#include "harness/core/page.h"
#include "harness/core/progress.h"
#include "harness/evaluate/cell_procedures.h"
#include "harness/method/registry.h"

namespace kvarena::cli {
namespace {

using evaluate::Request;
using experiment::Question;
using nlohmann::json;

struct Options {
  std::string model = kDefaultModel;
  std::string workload = "needle:words=[400]";
  int64_t prompts = 2;
  int64_t tokens = 16;
  double keep = 0.5;
  std::optional<std::filesystem::path> pairs;
  std::optional<std::filesystem::path> output;

  void declare(OptionSet& o) {
    o.option("model", "NAME", model)
        .help("a model of configs/models, or a checkpoint's path; both engines compute in f32");
    o.option("workload", "WORKLOAD", workload).help("JSON or NAME:key=value,...");
    o.option("prompts", "N", prompts).help("the first so many samples");
    o.option("tokens", "N", tokens).help("of each answer, at most");
    o.option("keep", "SHARE", keep).help("budget of every method and press");
    o.option("pairs", "FILE", pairs)
        .help("a list of {\"press\": ..., \"method\": {...}}")
        .default_text("configs/parity/presses.json");
    o.option("output", "FILE", output).help("write the table here").default_text("standard output");
  }

  void check() const {
    for (const auto& [name, value] : {std::pair{"--prompts", prompts}, std::pair{"--tokens", tokens}}) {
      if (value < 1) fail({.place = name, .found = fmt::format("{}", value), .expected = "at least 1"});
    }
    if (!(keep > 0 && keep <= 1)) {
      fail({.place = "--keep", .found = fmt::format("{}", keep), .expected = "above 0 and at most 1"});
    }
  }

  /// `reference`: full KV, as a config's entry.
  [[nodiscard]] experiment::ExperimentConfig config(const json& reference) const {
    const json text{{"name", "parity"},
                    {"models", json::array({model})},
                    {"workloads", json::array({parse_method_spec(workload, "--workload")})},
                    {"methods", json::array({reference})},
                    {"engine", json::object({{"max_new_tokens", tokens}})}};
    experiment::ExperimentConfig config =
        config_of({.config_text = text.dump(), .config_path = "parity", .overrides = {}, .data_dir = {}});
    config.models.front().dtype = config.models.front().kv_dtype = "f32";
    return config;
  }
};

/// The file's list: full KV first, a method without a press.
json read_list(const Options& options) {
  const std::filesystem::path file = options.pairs.value_or(own_file("configs/parity/presses.json"));
  json list = parse_json(read_file(file), file.string());
  const bool begins = list.is_array() && !list.empty() && list[0].contains("method") && !list[0].contains("press");
  if (begins) return list;
  fail({.place = file.string(),
        .found = brief(list),
        .expected = "a list of objects with \"press\" and \"method\", full KV first, without a press"});
}

/// The list under the budget. A press without a method runs here too where a plugin has brought the method of presses.
std::vector<ParityPair> pairs_of(const json& list, double keep) {
  constexpr const char* kPresses = "kvpress";  // of python/kvarena/plugins/press.py
  std::vector<ParityPair> pairs;
  for (const json& entry : list) {
    ParityPair& pair = pairs.emplace_back();
    pair.method = entry.value("method", json());
    if (!entry.contains("press")) continue;
    pair.press = {{"name", kPresses}, {"press", entry["press"]}, {"keep", keep}};
    if (!pair.method.is_null()) {
      pair.method["keep"] = keep;
      pair.method["layers"] = "all";  // as presses do
    } else if (find_method(kPresses) != nullptr) {
      pair.method = pair.press;
    }
    if (!pair.method.is_null()) (void)make_method(pair.method, "--pairs");
  }
  return pairs;
}

std::string number(double value, const char* format) {
  return std::isnan(value) ? "–" : fmt::format(fmt::runtime(format), value);
}

/// Both sides' numbers in one field.
std::string both(const double (&values)[2], const char* format) {
  return fmt::format("{} / {}", number(values[0], format), number(values[1], format));
}

std::string method_name(const ParityPair& pair) {
  json method = pair.method;
  if (method.is_null()) return "–";
  if (method.contains("press")) return "the same press, on our engine";
  method.erase("keep");
  method.erase("layers");
  return fmt::format("`{}`", short_form(method));
}

std::string press_name(const ParityPair& pair) {
  return pair.press.is_null() ? "full KV" : fmt::format("`{}`", pair.press["press"].get<std::string>());
}

/// The first line, without the file that it is about.
std::string in_short(const std::string& failure) {
  constexpr std::string_view kFound = ": found ";
  const std::string line = failure.substr(0, failure.find('\n'));
  const size_t at = line.find(kFound);
  return at == std::string::npos ? line : line.substr(at + kFound.size());
}

std::string table(const std::vector<ParityPair>& pairs, const std::vector<ParityRow>& rows) {
  std::string text = markdown_row({"kvarena", "kvpress in transformers", "kept alike", "KL between, nats",
                                   "KL to full KV, nats", "score", "seconds"}) +
                     markdown_row({"---", "---", "---:", "---:", "---:", "---:", "---:"});
  std::string failures;
  for (size_t i = 0; i < rows.size(); ++i) {
    const ParityRow& row = rows[i];
    text += markdown_row({method_name(pairs[i]), press_name(pairs[i]), number(100 * row.kept_alike, "{:.2f}%"),
                          number(row.between_nats, "{:.2g}"), both(row.loss_nats, "{:.2g}"), both(row.score, "{:.2f}"),
                          both(row.seconds, "{:.2f}")});
    for (const int side : {0, 1}) {
      if (row.failure[side].empty()) continue;
      failures += fmt::format("- {}, {}: {}\n", press_name(pairs[i]), side == 0 ? "kvarena" : "transformers",
                              in_short(row.failure[side]));
    }
  }
  return failures.empty() ? text : fmt::format("{}\n{}", text, failures);
}

std::string heading(const Options& options, const std::vector<Request>& requests, const std::string& version) {
  double tokens = 0;
  for (const Request& request : requests) tokens += static_cast<double>(request.asked_tokens());
  constexpr const char* kText = R"(# Parity with kvpress

Model {} in f32, keep {}; prompts: {} of `{}`, {:.0f} tokens on average; {}. Both engines read the same token ids, and tokens
are chosen by one rule. A row is our method beside the press that it restates.

- Kept alike: entries that both keep, of those of the side that keeps more, mean over layers and heads.
- A press drops from the prompt alone; a method that goes on while decoding departs from it there (KL), whatever was kept.
- Where a press draws random numbers (`LeverageScorePress`, `CompactorPress`), each engine draws its own.
- KL between: from our logits to theirs along our full KV's answer, mean over steps.
- KL to full KV in each engine, score (`{}`) and seconds of prompt and free answer: ours / theirs.

)";
  return fmt::format(kText, options.model, options.keep, requests.size(), options.workload,
                     tokens / static_cast<double>(requests.size()), version, requests.front().metrics.front());
}

std::vector<Request> requests_of(const Options& options, const experiment::ExperimentConfig& config,
                                 evaluate::LoadedModel& model, std::deque<datasets::Sample>& samples) {
  const experiment::ComponentEntry& entry = config.workloads.front();
  const auto workload = datasets::make_workload(entry.name, entry.settings_json, "--workload");
  const std::vector<std::string> metrics = evaluate::score_metrics(workload->info(), config);
  if (metrics.empty()) {
    fail({.place = "--workload",
          .found = fmt::format("{}, whose answers have no score", entry.name),
          .expected = "one"});
  }
  datasets::SampleReader reader =
      workload->open({.tokens = &model.tokens(), .max_prompt_tokens = model.config().max_position});
  std::vector<Request> requests;
  while (std::ssize(requests) < options.prompts) {
    std::optional<datasets::Sample> sample = reader.next();
    if (!sample) break;
    const datasets::Sample& kept = samples.emplace_back(std::move(*sample));
    const Question question = kept.has_context() ? Question::unseen : Question::seen;
    requests.push_back(model.request(kept, config.engine, metrics, question));
  }
  if (requests.empty()) fail({.place = "--workload", .found = "no sample", .expected = "at least one"});
  return requests;
}

int run(const Options& options) {
  options.check();
  const json list = read_list(options);
  const experiment::ExperimentConfig config = options.config(list[0]["method"]);
  experiment::require_models(config, kvarena_home());
  const experiment::ModelEntry& entry = config.models.front();
  const std::filesystem::path checkpoint = entry.file(kvarena_home());
  const std::vector<ParityPair> pairs = pairs_of(list, options.keep);
  TransformersEngine engine(checkpoint, entry.dtype, entry.device);
  const std::string version = engine.version();
  engine.load(0);
  evaluate::LoadedModel model(entry, kvarena_home(), nullptr);
  std::deque<datasets::Sample> samples;  // requests point to them
  const std::vector<Request> requests = requests_of(options, config, model, samples);
  Progress progress;
  progress.begin("parity", std::ssize(requests) * std::ssize(pairs));
  const std::vector<ParityRow> rows = run_parity(
      {.model = model, .engine = engine, .requests = requests, .pairs = pairs, .on_pair = [&](const ParityPair& pair) {
         progress.message(press_name(pair));
       }});
  const std::string text = heading(options, requests, version) + table(pairs, rows);
  if (options.output) {
    write_file(*options.output, text);
  } else {
    print(text);
  }
  return std::ranges::any_of(rows, [](const ParityRow& row) { return !row.failure[1].empty(); }) ? 1 : 0;
}

}  // namespace

Command parity_command() {
  return make_command<Options>(
      {.name = "parity",
       .summary = "our methods beside kvpress's presses in transformers, on the same prompts",
       .description =
           "Runs each press unmodified in Hugging Face's transformers, in the Python that KVARENA_PYTHON names, and "
           "the method that restates it here. Writes a table in Markdown; the exit code is 1 where a press failed.",
       .examples = {{"kvarena parity", "the table of all presses"},
                    {"kvarena --plugin \"$(python -m kvarena.plugins.press)\" parity --output parity.md",
                     "with presses that no method restates, each beside itself on our engine"}}},
      run);
}

}  // namespace kvarena::cli
