// kvarena codecs CONFIG: what codecs make of a prompt's real keys and values.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/cli/commands.h"
#include "harness/cli/model_input.h"
#include "harness/cli/texts.h"
#include "harness/cli/worker_setup.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/own_files.h"
#include "harness/core/page.h"
#include "harness/engine/session/packing.h"
#include "harness/evaluate/method_files.h"
#include "harness/experiment/provenance.h"
#include "harness/method/registry.h"
#include "harness/method/stream_codec.h"
#include "kernels/common/parallel.h"
#include "metrics/stored_metrics.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

struct Options {
  std::filesystem::path config;
  ModelOptions model;
  std::string data = "essays";
  int64_t context = 2048;
  int64_t repeats = 3;
  int64_t threads = 1;
  int64_t seed = 1;
  bool as_json = false;

  void declare(OptionSet& o) {
    o.positional("CONFIG", config).help("an experiment, whose codecs are measured: configs/quantizers.json");
    model.declare(o);
    o.option("data", "DATA", data)
        .help("the prompt: a workload's name, a text file, a folder of .txt files, or essays");
    o.option("context", "N", context).help("tokens of the prompt");
    o.option("repeats", "N", repeats).help("of packing and decoding; the fastest counts");
    o.option("threads", "N", threads).help("that pack and decode");
    o.option("seed", "N", seed).help("of essays");
    o.flag("json", as_json).help("for programs");
  }
  void check() const {
    for (const auto& [name, value] :
         {std::pair{"--context", context}, std::pair{"--repeats", repeats}, std::pair{"--threads", threads}}) {
      if (value < 1) fail({.place = name, .found = fmt::format("{}", value), .expected = "at least 1"});
    }
  }
};

struct Codec {
  const experiment::ComponentEntry* entry = nullptr;
  std::unique_ptr<Method> method;
  const results::PublishedValue* published = nullptr;  // published bits; null when there are none
};

const results::PublishedValue* published_bits(const experiment::ExperimentConfig& config, const std::string& label) {
  const auto found = std::ranges::find_if(config.published, [&](const results::PublishedValue& value) {
    return value.metric == metrics::kBitsPerNumber.name && value.method == label;
  });
  return found == config.published.end() ? nullptr : &*found;
}

/// The config's methods that are codecs over all entries.
std::vector<Codec> codecs_of(const experiment::ExperimentConfig& config) {
  std::vector<Codec> codecs;
  for (const experiment::ComponentEntry& entry : config.methods) {
    const json spec = evaluate::spec_of(entry);
    if (spec.contains("over") && !spec["over"].is_null()) continue;
    auto method = make_method(spec, entry.label);
    if (!is_codec(*method)) continue;
    codecs.push_back({&entry, std::move(method), published_bits(config, entry.label)});
  }
  if (codecs.empty()) fail({.place = "CONFIG", .found = "no codec among its methods", .expected = "one at least"});
  return codecs;
}

std::vector<int32_t> prompt_of(const Options& options, const OpenedModel& model) {
  const TextRequest wanted{.data = options.data, .count = 1, .tokens = options.context, .seed = options.seed};
  const std::vector<std::string> texts = read_texts(wanted, model);
  std::vector<int32_t> tokens = texts.empty() ? std::vector<int32_t>{} : model.tokenizer->encode(texts.front());
  if (tokens.empty()) fail({.place = "--data", .found = options.data + ": no text", .expected = "a prompt"});
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(options.context)));
  return tokens;
}

/// Speed in MB of 16-bit numbers a second.
double megabytes_per_second(const Packing& packing, double seconds) {
  return 2e-6 * static_cast<double>(packing.size.numbers) / std::max(seconds, 1e-9);
}

json row_of(const Codec& codec, const Packing& packing) {
  json row = {{"codec", codec.entry->label},
              {"method", codec.entry->name},
              {"settings", json::parse(codec.entry->settings_json)},
              {metrics::kBitsPerNumber.name, packing.size.bits_per_number()},
              {"key_error", packing.key_error},
              {"value_error", packing.value_error},
              {"encode_mb_per_s", megabytes_per_second(packing, packing.encode_seconds)},
              {"decode_mb_per_s", megabytes_per_second(packing, packing.decode_seconds)}};
  if (packing.attend_seconds > 0) row["attention_speedup"] = packing.full_attend_seconds / packing.attend_seconds;
  if (codec.published != nullptr) {
    row["published_bits"] = codec.published->value;
    row["source"] = codec.published->source;
  }
  return row;
}

void print_text(const json& report) {
  print(fmt::format("{} tokens of {}, {}\n\n", report["tokens"].get<int64_t>(), report["data"].get<std::string>(),
                    report["model"].get<std::string>()));
  std::vector<std::vector<std::string>> rows = {
      {"codec", "bits", "published", "key error", "value error", "packs MB/s", "decodes MB/s", "attends"}};
  for (const json& row : report["codecs"]) {
    if (row.contains("failure")) {
      rows.push_back({row["codec"], row["failure"].get<std::string>()});
      continue;
    }
    const auto fixed = [&row](const std::string& name, int digits) {
      return row.contains(name) ? fmt::format("{:.{}f}", row[name].get<double>(), digits) : "";
    };
    const auto error = [&row](const std::string& name) { return fmt::format("{:.2g}", row[name].get<double>()); };
    rows.push_back({row["codec"], fixed(metrics::kBitsPerNumber.name, 2), fixed("published_bits", 2),
                    error("key_error"), error("value_error"), fixed("encode_mb_per_s", 0), fixed("decode_mb_per_s", 0),
                    fixed("attention_speedup", 2)});
  }
  print(Page().columns(rows));
  print(fmt::format(
      "\nErrors are squared, relative to the numbers' own squares. MB are of 16-bit numbers, {} thread{}. Attends: how "
      "many times as fast as to the full cache a token's queries attend.\n",
      report["threads"].get<int64_t>(), report["threads"] == 1 ? "" : "s"));
}

int run(const Options& options) {
  options.check();
  const std::filesystem::path file = find_config(options.config);
  const experiment::ExperimentConfig config = config_of({.config_text = read_file(file), .config_path = file});
  const std::vector<Codec> codecs = codecs_of(config);
  const OpenedModel model = open_chosen(options.model);
  const std::vector<int32_t> tokens = prompt_of(options, model);
  Transformer transformer = load_weights(model, options.model);
  Needs needs;
  for (const Codec& codec : codecs) needs = combine(needs, codec.method->needs());
  const Prefill prompt =
      prefill(transformer, tokens, needs, kPrefillChunk, facts_of(model, transformer, options.model));

  json rows = json::array();
  const kernels::ScopedThreads threads(static_cast<int>(options.threads));
  bool failed = false;
  for (const Codec& codec : codecs) {
    try {
      rows.push_back(row_of(codec, measure_packing(transformer, prompt, *codec.method, options.repeats)));
    } catch (const UserError& error) {  // weights of another model, a library that is not there: the others count
      rows.push_back({{"codec", codec.entry->label}, {"failure", error.what()}});
      failed = true;
    }
  }
  const results::RunRecord made = experiment::collect_provenance();
  const json report = {{"model", model.config.name},    {"dtype", options.model.dtype}, {"data", options.data},
                       {"tokens", tokens.size()},       {"threads", options.threads},   {"repeats", options.repeats},
                       {"revision", made.git_revision}, {"cpu", made.cpu_model},        {"codecs", rows}};
  if (options.as_json) {
    print(report.dump(2) + "\n");
  } else {
    print_text(report);
  }
  return failed ? 1 : 0;
}

}  // namespace

Command codecs_command() {
  return make_command<Options>(
      {.name = "codecs",
       .summary = "what codecs make of real keys and values: bits, errors, speed",
       .description =
           "Packs one prompt's cache with every codec of an experiment and decodes it again. Bits for each number are "
           "counted from the buffers, scales and tables included, beside those that the papers print; numbers that a "
           "codec leaves in 16 bits count on neither side. A token's queries attend to the packed cache and to the "
           "full one in turns. Codecs over a dropping method are left out.",
       .examples = {{"kvarena codecs configs/quantizers.json", "a table for the default model"},
                    {"kvarena codecs configs/quantizers.json --context 4096 --json", "for programs"}}},
      run);
}

}  // namespace kvarena::cli
