#include "harness/experiment/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "harness/experiment/config_parts.h"
#include "harness/experiment/expected_use.h"
#include "harness/experiment/method_batch.h"
#include "harness/results/left_out.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;
using results::CellKind;
using results::CellRecord;

constexpr size_t kIdDigits = 20;  // 80 bits of SHA-256: no collision among any number of cells that can be run

/// The engine's settings that change what a cell measures. Threads change times only, the noise floor's samples are
/// cells of their own. `files`: those that the method reads.
std::string engine_identity(const ExperimentConfig& config, const CellGroup& group, const ComponentEntry& method,
                            const std::vector<results::RunInput>& files) {
  const CellKind kind = group.kind;
  EngineSettings engine = config.engine;
  json identity = parameter_values([&](ParameterVisitor& p) { engine.parameters(p); });
  identity.erase("noise_floor");
  if (engine.draws == 1) identity.erase("draws");  // cells of before there were several have no such key
  for (const results::RunInput& file : files) identity["files"][file.name] = file.sha256;
  if (kind == CellKind::serving) {
    ServingSettings serving = config.serving.value();
    identity.update(parameter_values([&](ParameterVisitor& p) { serving.parameters(p); }));
    const ServingSettings before;  // what was not there yet decides nothing where it is not used
    if (serving.stored_prompts == before.stored_prompts) identity.erase("stored_prompts");
    if (serving.burstiness == before.burstiness) identity.erase("burstiness");
    if (serving.think == before.think) identity.erase("think");
    if (serving.warmup == before.warmup) identity.erase("warmup");
    if (serving.cooldown == before.cooldown) identity.erase("cooldown");
    if (serving.ignore_eos == before.ignore_eos) identity.erase("ignore_eos");
    if (serving.shared_prefix == before.shared_prefix) identity.erase("shared_prefix");
    identity["requests"] = group.requests;
    identity["reload_share"] = 0.25;  // the default of a setting that cells of before name
    if (config.contexts) {
      identity["requests_of_a_point"] = serving.requests;
      identity["contexts"] = json::parse(contexts_json(*config.contexts));
    }
  } else if (kind != CellKind::timing) {
    identity.erase("threads");
  } else {
    TimingSettings timing = config.timing.value();
    json settings = parameter_values([&](ParameterVisitor& p) { timing.parameters(p); });
    settings.erase("samples");
    settings["batch"] = timed_batch(config, method, group.workload->label, group.model->label);
    identity.update(settings);
    if (config.remote_prefix) {
      RemotePrefixSettings links = *config.remote_prefix;
      json described = parameter_values([&](ParameterVisitor& p) { links.parameters(p); });
      described.erase("store");  // wherever it is
      if (!links.store.empty()) described["over_socket"] = true;
      identity["remote_prefix"] = std::move(described);
    }
  }
  return identity.dump();
}

std::string model_identity(const ModelEntry& model, CellKind kind) {
  const bool timed = kind == CellKind::timing || kind == CellKind::serving;
  json identity = json::parse(model.parameters_json(timed));
  identity["name"] = model.name;
  return identity.dump();
}

std::string workload_identity(const ComponentEntry& workload) {
  json identity = json::parse(workload.settings_json);
  identity["name"] = workload.name;
  if (workload.request_tokens) identity["request_tokens"] = request_tokens_json(*workload.request_tokens);
  return identity.dump();
}

std::string id_of(const CellRecord& cell) {
  const json identity = {{"experiment", cell.experiment},
                         {"kind", results::name(cell.kind)},
                         {"model", cell.model},
                         {"model_json", cell.model_json},
                         {"workload", cell.workload},
                         {"workload_json", cell.workload_json},
                         {"method", cell.method},
                         {"method_name", cell.method_name},
                         {"settings_json", cell.settings_json},
                         {"engine_json", cell.engine_json},
                         {"protocol_sha256", cell.protocol_sha256}};
  return sha256(identity.dump()).substr(0, kIdDigits);
}

PlannedCell plan_cell(const ExperimentConfig& config, const CellGroup& group, const ComponentEntry& method,
                      Catalog& catalog) {
  CellRecord cell;
  cell.experiment = config.name;
  cell.kind = group.kind;
  cell.model = group.model->label;
  cell.model_json = model_identity(*group.model, group.kind);
  cell.workload = group.workload->label;
  cell.workload_json = workload_identity(*group.workload);
  cell.method = method.label;
  cell.method_name = method.name;
  cell.settings_json = method.settings_json;
  cell.engine_json = engine_identity(config, group, method, catalog.method_inputs(*group.model, method));
  cell.protocol_json = json::parse(catalog.protocol_card(*group.model, *group.workload, method, group.kind)).dump();
  cell.protocol_sha256 = sha256(cell.protocol_json);
  cell.baseline = method.baseline;
  cell.planned_samples = static_cast<int64_t>(group.sample_ids.size());
  cell.left_out_samples = group.left_out;
  cell.cell_id = id_of(cell);
  return {.record = std::move(cell),
          .model = group.model,
          .workload = group.workload,
          .method = &method,
          .missing = catalog.missing_weights(*group.model, method)};
}

void check_sample_ids(const CellGroup& group) {
  std::vector<std::string> sorted = group.sample_ids;
  std::ranges::sort(sorted);
  const bool unique = std::ranges::adjacent_find(sorted) == sorted.end();
  KVARENA_ASSERT(unique, fmt::format("workload {} names two samples alike", group.workload->label));
  if (sorted.empty() && group.left_out == 0) {
    fail({.place = fmt::format("workload {}", group.workload->label),
          .found = fmt::format("no sample for model {}", group.model->label),
          .expected = "at least one"});
  }
}

/// Samples of each point of a load; no two points share one. Stored contexts are those of every point, however often it
/// asks about them: each fills a store of its own.
int64_t samples_of_a_point(const ExperimentConfig& config, const ComponentEntry& workload, int64_t samples) {
  const auto points = static_cast<int64_t>(config.serving->load.size());
  const int64_t requests = config.contexts ? samples : std::min(config.serving->requests, samples / points);
  const int64_t idle = config.serving->warmup + config.serving->cooldown;
  if (requests > idle) return requests;
  fail({.place = fmt::format("serving, workload {}", workload.label),
        .found = fmt::format("{} samples", samples),
        .expected =
            fmt::format("at least {} for each of {} points", idle == 0 ? "one" : std::to_string(idle + 1), points),
        .action = "raise the limit or list fewer loads"});
}

/// Samples that are timed; with stored prefixes the first of each point's prompts, which are as many that follow.
WorkloadSamples timed_samples(const ExperimentConfig& config, Catalog& catalog, const ModelEntry& model,
                              const ComponentEntry& workload) {
  const int64_t prompts = config.remote_prefix ? config.remote_prefix->prompts : 1;
  WorkloadSamples samples = catalog.samples(model, workload, CellKind::timing, config.timing->samples * prompts);
  const int64_t found = std::ssize(samples.ids);
  if (found > 0 && found < prompts) {
    fail({.place = fmt::format("workload {}: remote_prefix.prompts", workload.label),
          .found = fmt::format("{} of them, {} samples", prompts, found),
          .expected = "a sample for each prompt"});
  }
  const int64_t points = found / prompts;
  for (int64_t i = 0; i < points; ++i)
    samples.ids[static_cast<size_t>(i)] = samples.ids[static_cast<size_t>(i * prompts)];
  samples.ids.resize(static_cast<size_t>(points));
  return samples;
}

int64_t samples_done(const CellGroup& group, const PlannedCell& cell, const results::ResultsReader& results) {
  const auto done = results.done_samples(cell.record.cell_id);
  return std::ranges::count_if(group.sample_ids, [&](const std::string& id) { return done.contains(id); });
}

constexpr int64_t kMostSamples = 200'000;  // of all workloads together: many times what any paper asks

/// The workload's samples, taken from `room`, which is what is left for the workloads to come.
WorkloadSamples take_samples(Catalog& catalog, const ModelEntry& model, const ComponentEntry& workload, CellKind kind,
                             int64_t& room) {
  WorkloadSamples samples = catalog.samples(model, workload, kind, room + 1);
  room -= std::ssize(samples.ids);
  if (room >= 0) return samples;
  fail({.place = fmt::format("workload {}", workload.label),
        .found = fmt::format("more than {} samples with those of the workloads before it", kMostSamples),
        .expected = "fewer",
        .action = R"(give it a "limit" or a smaller "samples", or divide the experiment into several)"});
}

/// Whether answers are scored: not where prompts' caches are stored, for then they are evaluated as requests get them,
/// nor where prompts are brought to a length.
bool evaluates_answers(const ExperimentConfig& config, const ComponentEntry& workload) {
  return !config.contexts && !config.remote_prefix && !workload.request_tokens;
}

/// A larger plan is a slip of a matrix: it would take more memory than the results.
void check_size(const ExperimentConfig& config) {
  constexpr size_t kMostCells = 100'000;
  const size_t cells = config.models.size() * config.workloads.size() * config.methods.size();
  if (cells <= kMostCells) return;
  fail({.place = config.path.string(),
        .found = fmt::format("{} models x {} workloads x {} methods, {} cells", config.models.size(),
                             config.workloads.size(), config.methods.size(), cells),
        .expected = fmt::format("at most {}", kMostCells),
        .action = "divide the experiment into several"});
}

}  // namespace

Shard parse_shard(const std::string& text, const std::string& place) {
  Shard shard;
  const char* end = text.data() + text.size();
  const auto index = std::from_chars(text.data(), end, shard.index);
  const bool slash = index.ec == std::errc() && index.ptr != end && *index.ptr == '/';
  const auto count = slash ? std::from_chars(index.ptr + 1, end, shard.count) : index;
  if (slash && count.ec == std::errc() && count.ptr == end && shard.index >= 0 && shard.index < shard.count)
    return shard;
  fail({.place = place, .found = text, .expected = "i/n: part i of n, counted from 0"});
}

int64_t CellGroup::asked_samples() const { return std::ranges::count(asked, true); }

int64_t Plan::evaluations() const {
  int64_t total = 0;
  for (const CellGroup& group : groups) total += group.asked_samples() * static_cast<int64_t>(group.cells.size());
  return total;
}

std::vector<results::InventedData> Plan::invented() const {
  std::vector<results::RunInput> inputs;
  for (const CellGroup& group : groups) inputs.push_back(group.data);
  return results::invented_data(inputs);
}

Plan make_plan(ExperimentConfig config, Catalog& catalog, Shard shard) {
  check_size(config);
  Plan plan{.config = std::make_unique<const ExperimentConfig>(std::move(config)), .groups = {}};
  int64_t room = kMostSamples;
  int64_t position = 0;
  const auto add_group = [&](const ModelEntry& model, const ComponentEntry& workload, CellKind kind,
                             const WorkloadSamples& samples, int64_t requests = 0) {
    CellGroup group{.model = &model,
                    .workload = &workload,
                    .kind = kind,
                    .sample_ids = samples.ids,
                    .left_out = samples.left_out,
                    .requests = requests,
                    .data = catalog.data_input(model, workload),
                    .cells = {},
                    .asked = {}};
    for (const ComponentEntry& method : plan.config->methods) {
      if (kind == CellKind::noise_floor && !method.baseline) continue;
      if (!method.runs_on(model.label)) continue;
      group.cells.push_back(plan_cell(*plan.config, group, method, catalog));
      group.cells.back().record.position = position++;
    }
    check_sample_ids(group);
    const ModelSize size = catalog.model_size(model);
    group.cost = expected_cost(*plan.config, group, samples, size);
    group.weight_bytes = size.weight_bytes;
    group.bytes = expected_bytes(*plan.config, group, samples, size);
    const auto place = static_cast<int64_t>(plan.groups.size());
    const bool divided = kind == CellKind::quality || kind == CellKind::noise_floor;
    for (size_t i = 0; i < group.sample_ids.size(); ++i) {
      // Counted from the group's place, so that many small groups do not all begin with the first shard.
      group.asked.push_back((place + (divided ? static_cast<int64_t>(i) : 0)) % shard.count == shard.index);
    }
    plan.groups.push_back(std::move(group));
  };
  for (const ModelEntry& model : plan.config->models) {
    for (const ComponentEntry& workload : plan.config->workloads) {
      const bool answers = evaluates_answers(*plan.config, workload);
      const bool served = plan.config->serving && !workload.request_tokens;
      if (answers) {
        WorkloadSamples samples = take_samples(catalog, model, workload, CellKind::quality, room);
        add_group(model, workload, CellKind::quality, samples);
        const auto again =
            std::min(std::ssize(samples.ids), static_cast<std::ptrdiff_t>(plan.config->engine.noise_floor));
        samples.ids.resize(static_cast<size_t>(again));
        samples.left_out = 0;  // of the first that fit
        if (again > 0) add_group(model, workload, CellKind::noise_floor, samples);
      }
      if (plan.config->timing) {
        add_group(model, workload, CellKind::timing, timed_samples(*plan.config, catalog, model, workload));
      }
      if (served) {
        WorkloadSamples samples = take_samples(catalog, model, workload, CellKind::serving, room);
        const bool none_fits = samples.ids.empty() && samples.left_out > 0;
        const int64_t requests = none_fits ? 0 : samples_of_a_point(*plan.config, workload, std::ssize(samples.ids));
        if (!none_fits) samples.ids = plan.config->serving->points();
        add_group(model, workload, CellKind::serving, samples, requests);
      }
    }
  }
  return plan;
}

int64_t samples_left(const CellGroup& group, const PlannedCell& cell, const results::ResultsReader* done) {
  const auto there = done == nullptr ? std::set<std::string>() : done->done_samples(cell.record.cell_id);
  int64_t left = 0;
  for (size_t i = 0; i < group.sample_ids.size(); ++i) left += group.asked[i] && !there.contains(group.sample_ids[i]);
  return left;
}

std::string describe_plan(const Plan& plan, const results::ResultsReader* done, const std::string& use) {
  size_t label_width = 0;
  size_t cells = 0;
  for (const CellGroup& group : plan.groups) {
    cells += group.cells.size();
    for (const PlannedCell& cell : group.cells) label_width = std::max(label_width, cell.record.method.size());
  }
  std::string body;
  int64_t total_done = 0;
  for (const CellGroup& group : plan.groups) {
    const auto samples = static_cast<int64_t>(group.sample_ids.size());
    const std::string part = group.asked_samples() == samples ? "" : fmt::format("{} of ", group.asked_samples());
    const std::string mark = results::invented_mark(results::invented_data({&group.data, 1}));
    const std::string question = json::parse(group.cells.front().record.protocol_json).value("question", "");
    body += fmt::format("\n{}, {}, {}: {}{} samples", group.model->label, group.workload->label,
                        results::name(group.kind), part, samples);
    for (const std::string& said :
         {results::left_out_text(group.cells.front().record), mark, question.empty() ? "" : "question " + question}) {
      if (!said.empty()) body += "; " + said;
    }
    body += '\n';
    for (const PlannedCell& cell : group.cells) {
      const auto row = done == nullptr ? std::nullopt : done->cell(cell.record.cell_id);
      if (!cell.missing.empty() || !row) {
        body += fmt::format("  {}{}\n", cell.record.method, cell.missing.empty() ? "" : "  missing: " + cell.missing);
        continue;
      }
      const int64_t there = samples_done(group, cell, *done);
      total_done += there;
      body +=
          fmt::format("  {:<{}}  {} of {} done, {}{}{}\n", cell.record.method, label_width, there,
                      group.sample_ids.size(), results::name(row->state), row->reason.empty() ? "" : ": ", row->reason);
    }
  }
  return fmt::format("{}: {} cells, {} evaluations, {} done already{}\n", plan.config->name, cells, plan.evaluations(),
                     total_done, use.empty() ? "" : "; " + use) +
         body;
}

}  // namespace kvarena::experiment
