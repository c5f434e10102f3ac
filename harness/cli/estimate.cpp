// kvarena estimate: what methods would take on described hardware. Modelled, and marked so.

#include "harness/cost_model/estimate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "harness/cli/acceptance_of_run.h"
#include "harness/cli/commands.h"
#include "harness/cli/estimate_method.h"
#include "harness/cli/estimate_model.h"
#include "harness/cli/estimate_text.h"
#include "harness/cli/method_spec.h"
#include "harness/cli/registry_text.h"
#include "harness/core/error.h"
#include "harness/core/home.h"
#include "harness/core/own_files.h"
#include "harness/core/page.h"
#include "harness/core/parameters.h"
#include "harness/cost_model/comparison.h"

namespace kvarena::cli {
namespace {

using cost_model::CacheScheme;
using cost_model::Calibration;
using cost_model::Hardware;
using cost_model::ModelShape;
using cost_model::Workload;
using nlohmann::json;

constexpr const char* kThisMachine = "this";

struct Options {
  std::string model;
  std::string hardware;
  std::vector<std::string> contexts;
  int64_t output = 256;
  int64_t weight_bits = 16;
  std::vector<std::string> kv_bits;
  std::vector<std::string> keep;
  std::vector<std::string> caches;
  std::vector<std::string> methods;
  ModelOptions measured_on;
  std::optional<int64_t> batch;
  std::optional<std::filesystem::path> acceptance;
  bool load_at_arrival = false;
  std::optional<std::filesystem::path> calibration;
  std::string benchmarked = kDefaultModel;
  bool published = false;
  bool json = false;

  void declare(OptionSet& o) {
    o.option("model", "SHAPE", model).help("a name in configs/shapes, a .gguf file or a checkpoint's folder");
    o.option("hardware", "NAME", hardware)
        .help("a name in configs/hardware, a file, or \"this\": the machine of the benchmark that --calibrate names");
    o.option("context", "N", contexts).help("prompt tokens, as 8192 or 8k").default_text("8k, 32k");
    o.option("output", "N", output).help("tokens that are decoded");
    o.option("weight-bits", "N", weight_bits).help("bits of a weight");
    o.option("kv-bits", "N", kv_bits).help("a packed cache with two 16-bit numbers for 64");
    o.option("keep", "SHARE", keep).help("a cache of which this share stays");
    o.option("cache", "SPEC", caches)
        .help("any other cache: LABEL:bits=2,residual=64,offloaded=true,fetched=64 (harness/cost_model/roofline.h)");
    o.option("method", "METHOD", methods)
        .help("a registered method, JSON or NAME:key=value,...: what it keeps, reads and fetches is measured first");
    o.option("measure-on", "NAME|PATH", measured_on.model).help("the model that --method is measured on");
    o.option("batch", "N", batch).help("requests").default_text("as many as fit");
    o.option("acceptance", "FILE", acceptance)
        .help(
            "results database of a run that drafted, or JSON of acceptance curves: also plan drafting on a compressed "
            "cache, verified over the host link, and run its schedules on the modelled clock");
    o.flag("load-at-arrival", load_at_arrival)
        .help("with --acceptance: requests' caches come over the link when they arrive, instead of being there");
    o.option("calibrate", "FILE", calibration)
        .help("JSON of kvarena-backend-bench: take shares of peaks from it, and show how far the model is from it");
    o.option("calibrate-model", "SHAPE", benchmarked).help("the model that was benchmarked");
    o.flag("published", published).help("only write the page of published beside modelled figures (docs/modelled.md)");
    o.flag("json", json).help("write JSON, with every input and its source");
  }
};

int64_t on_tokens(const std::string& text) {
  int64_t tokens = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, tokens);
  const std::string_view rest(stopped, static_cast<size_t>(end - stopped));
  if (error != std::errc() || tokens < 1 || tokens > (1 << 30) || (!rest.empty() && rest != "k")) {
    fail({.place = "--context", .found = text, .expected = "a number of tokens, as 8192 or 8k"});
  }
  return rest == "k" ? 1024 * tokens : tokens;
}

CacheScheme read_cache(const json& spec, const std::string& place) {
  CacheScheme cache;
  const std::vector<std::string> problems =
      read_parameters(spec, place, [&](ParameterVisitor& p) { cache.parameters(p); });
  if (!problems.empty()) throw UserError(fmt::format("{}", fmt::join(problems, "\n")));
  cache.label = spec.value("name", cache.label);
  return cache;
}

/// A value that the parameter's own description checks.
json number_of(const std::string& text, const char* option) {
  json value = json::parse(text, nullptr, false);
  if (!value.is_number()) fail({.place = option, .found = text, .expected = "a number"});
  return value;
}

std::vector<CacheScheme> read_caches(const Options& options) {
  std::vector<CacheScheme> caches = {CacheScheme{}};
  for (const std::string& text : options.kv_bits) {
    caches.push_back(read_cache({{"name", fmt::format("{} bits", text)},
                                 {"bits", number_of(text, "--kv-bits")},
                                 {"metadata_bits", cost_model::metadata_bits(32, 64)}},
                                "--kv-bits"));
  }
  for (const std::string& text : options.keep) {
    caches.push_back(
        read_cache({{"name", fmt::format("keep {}", text)}, {"keep", number_of(text, "--keep")}}, "--keep"));
  }
  for (const std::string& text : options.caches) {
    caches.push_back(read_cache(parse_method_spec(text, "--cache"), "--cache"));
  }
  return caches;
}

double memory_of_this_machine() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

Hardware read_machine(const Options& options, const std::optional<Calibration>& calibration) {
  if (options.hardware == kThisMachine) {
    if (!calibration) {
      fail({.place = "--hardware this",
            .found = "no benchmark of it",
            .expected = "--calibrate FILE",
            .action = "kvarena-backend-bench --benchmark_format=json --benchmark_out=FILE writes one"});
    }
    return calibrated_machine(*calibration, memory_of_this_machine());
  }
  Hardware machine =
      cost_model::read_hardware(cost_model::find_description(options.hardware, own_file("configs/hardware")));
  if (calibration) {
    const cost_model::Efficiency assumed = machine.efficiency;
    machine.efficiency = calibration->efficiency;
    machine.efficiency.link = assumed.link;
    machine.efficiency.usable_memory = assumed.usable_memory;
  }
  return machine;
}

json measured_json(const std::vector<MeasuredMethod>& methods, const std::string& model) {
  json list = json::array();
  for (const MeasuredMethod& method : methods) {
    json costs = json::array();
    for (const MethodCost& cost : method.costs) {
      costs.push_back({{"prompt", cost.prompt},
                       {"resident", cost.resident},
                       {"host", cost.host},
                       {"attended", cost.attended},
                       {"fetched", cost.fetched}});
    }
    list.push_back({{"method", method.label}, {"unit", "entries of full KV in 16 bits"}, {"costs", std::move(costs)}});
  }
  return {{"model", model}, {"methods", std::move(list)}};
}

int print_published() {
  const cost_model::DescriptionFolders folders{.hardware = own_file("configs/hardware"),
                                               .shapes = own_file("configs/shapes")};
  std::vector<cost_model::Comparison> all;
  for (const std::string& name : cost_model::description_names(own_file("configs/modelled"))) {
    all.push_back(cost_model::read_comparison(own_file("configs/modelled") / (name + ".json"), folders));
  }
  print(cost_model::comparison_page(all));
  return 0;
}

void require_positive(const char* option, int64_t value) {
  if (value >= 1) return;
  fail({.place = option, .found = std::to_string(value), .expected = "at least 1"});
}

int run(const Options& options) {
  if (options.published) return print_published();
  std::optional<Calibration> calibration;
  if (options.calibration) {
    calibration = cost_model::calibrate(cost_model::read_bench(*options.calibration), find_shape(options.benchmarked),
                                        options.calibration->string());
  }
  if (options.model.empty() && options.hardware.empty() && calibration) {
    if (options.json) {
      print(fmt::format("{}\n", cost_model::calibration_json(*calibration).dump(2)));
    } else {
      print_validation(*calibration);
    }
    return 0;
  }
  if (options.model.empty()) fail({.place = "--model", .found = "nothing", .expected = "a model's shape"});
  if (options.hardware.empty()) fail({.place = "--hardware", .found = "nothing", .expected = "a machine"});
  require_positive("--output", options.output);
  require_positive("--weight-bits", options.weight_bits);
  if (options.batch) require_positive("--batch", *options.batch);

  const ModelShape shape = find_shape(options.model);
  const Hardware hardware = read_machine(options, calibration);
  std::vector<Workload> workloads;
  for (const std::string& text : options.contexts.empty() ? std::vector<std::string>{"8k", "32k"} : options.contexts) {
    workloads.push_back({.context = on_tokens(text), .output = options.output, .weight_bits = options.weight_bits});
  }
  const std::vector<CacheScheme> caches = read_caches(options);
  std::vector<json> asked;
  for (const std::string& text : options.methods) asked.push_back(parse_method_spec(text, "--method"));
  const std::vector<MeasuredMethod> methods = measure_methods(asked, options.measured_on);
  const double entry_bytes = 2 * static_cast<double>(shape.numbers_per_entry());
  std::vector<cost_model::EstimateCase> cases;
  for (const Workload& workload : workloads) {
    for (const CacheScheme& cache : caches) cases.push_back({cache, workload});
    for (const MeasuredMethod& method : methods) {
      cases.push_back({scheme_at(method.costs, entry_bytes, workload.context + workload.output), workload});
      cases.back().scheme.label = method.label;
    }
  }
  const std::vector<cost_model::EstimateRow> rows = cost_model::estimate_rows(hardware, shape, cases, options.batch);
  std::vector<cost_model::PlanRow> plans;
  std::string acceptance_source;
  if (options.acceptance) {
    const cost_model::AcceptanceFile acceptance = acceptance_of(*options.acceptance);
    acceptance_source = acceptance.source;
    plans = cost_model::plan_rows(hardware, shape, acceptance, workloads, cost_model::LinkModel::strict,
                                  options.load_at_arrival);
  }

  if (options.json) {
    json out = cost_model::inputs_json(hardware, shape);
    for (const cost_model::EstimateRow& row : rows) out["rows"].push_back(cost_model::estimate_json(row));
    for (const cost_model::PlanRow& row : plans) out["plans"].push_back(cost_model::plan_json(row));
    if (!methods.empty()) out["measured"] = measured_json(methods, options.measured_on.model);
    if (calibration) out["calibration"] = cost_model::calibration_json(*calibration);
    print(fmt::format("{}\n", out.dump(2)));
    return 0;
  }
  print(Page()
            .bold(fmt::format("Modelled, not measured: {} on {}, {} tokens out", shape.title, hardware.title,
                              options.output))
            .text("\n"));
  print_estimates(rows);
  if (!methods.empty()) print_measured(methods, options.measured_on.model);
  if (options.acceptance) print_plans(plans, acceptance_source);
  print_inputs(hardware, shape);
  if (calibration) {
    print("\n");
    print_validation(*calibration);
  }
  return 0;
}

}  // namespace

Command estimate_command() {
  return make_command<Options>(
      {.name = "estimate",
       .summary = "model batches and speeds on hardware that is described, not at hand",
       .description =
           "A roofline: bytes over bandwidths, operations over FLOP/s, the longest counts, each times the share of its "
           "peak that programs reach. That share is assumed, and says so, unless --calibrate gives a measured one. "
           "Speed-ups are over full KV at its own largest batch.",
       .examples = {{"kvarena estimate --model llama-3.1-8b --hardware h100-80gb --kv-bits 4 --kv-bits 2 --keep 0.25",
                     "batches, times and what bounds them"},
                    {fmt::format("kvarena estimate --model llama-3.1-8b --hardware h100-80gb --method {}",
                                 example_method()),
                     "a method as it is, measured on the default model and modelled on described hardware"},
                    {"kvarena estimate --model llama-3.1-8b --hardware h100-80gb --acceptance acceptance.db",
                     "the best draft length and share kept, from the acceptance that a run measured"},
                    {"kvarena estimate --model smollm2-135m --hardware this --calibrate bench.json",
                     "the model held to what was measured here"}}},
      run);
}

}  // namespace kvarena::cli
