#include "harness/experiment/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"
#include "harness/core/json_text.h"
#include "harness/experiment/config_parts.h"
#include "harness/experiment/method_batch.h"
#include "harness/experiment/overrides.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;

/// "org/name" of a source on the hub; empty for another.
std::string hub_name(const std::string& source) {
  return source.starts_with(kHub) ? source.substr(kHub.size()) : std::string();
}

const std::vector<std::string> kTopKeys = {"$schema", "name",     "title",  "models", "workloads",
                                           "methods", "metrics",  "engine", "timing", "remote_prefix",
                                           "serving", "contexts", "output", "table",  "published"};

void check_keys(const json& config, Problems& problems) {
  for (const auto& [key, value] : config.items()) {
    if (std::ranges::find(kTopKeys, key) != kTopKeys.end()) continue;
    problems.add(key, "an unknown key", fmt::format("one of: {}", fmt::join(kTopKeys, ", ")),
                 nearest_name(key, kTopKeys));
  }
}

std::string read_text(const json& config, const char* key, bool required, Problems& problems) {
  const json value = config.value(key, json());
  const bool given = !value.is_null();
  if (given ? (!value.is_string() || (required && value.get_ref<const std::string&>().empty())) : required) {
    problems.add(key, given ? brief(value) : "nothing", required ? "a string that is not empty" : "a string");
  }
  return value.is_string() ? value.get<std::string>() : "";
}

template <typename Settings>
void read_group(const json& value, const char* key, Settings& settings, Problems& problems) {
  problems.append(read_parameters(value, problems.at(key), [&](ParameterVisitor& p) { settings.parameters(p); }, {}));
}

/// Checks constraints between serving's parameters.
void check_engine(const EngineSettings& engine, Problems& problems) {
  if (engine.host_link != "real" || !engine.host_link_bytes_per_s) return;
  problems.add("engine.host_link_bytes_per_s", "a rate for the real link",
               "an emulated link in \"host_link\" (pcie4_x16, ...), of which this is the rate");
}

/// Refuses what of requests over time is only known of this process.
template <typename Refuse>
void check_served_load(const ExperimentConfig& config, const Refuse& refuse) {
  if (!config.serving) return;
  if (config.contexts) refuse("stored contexts", "an engine of this process");
  if (config.serving->stored_prompts) refuse("\"stored_prompts\"", "prompts that the server reads");
  if (!config.serving->hardware.empty()) refuse("a modelled clock (\"hardware\")", "measured times alone");
}

/// Refuses what only this project's own engine can do.
void check_engines(const ExperimentConfig& config, Problems& problems) {
  for (size_t i = 0; i < config.models.size(); ++i) {
    const ModelEntry& model = config.models[i];
    const std::string place = fmt::format("models[{}].engine", i);
    const bool serves = model.engine != "transformers", computes = model.engine == "kvarena" || !serves;
    if (model.behind_endpoint() ? !serves : !computes) {
      problems.add(place, model.engine, serves ? "an \"endpoint\" beside it" : "no \"endpoint\" beside it");
    }
    if (!model.elsewhere()) continue;
    const auto refuse = [&](const std::string& found, const char* expected) {
      problems.add(place, fmt::format("{} and {}", model.engine, found), expected);
    };
    if (config.remote_prefix) refuse("stored prefixes", "an engine of this process");
    if (!model.devices.empty()) refuse("\"devices\"", "one device");
    if (model.arithmetic != "exact") refuse("\"arithmetic\"", "the arithmetic that it has");
    if (model.behind_endpoint()) {
      check_served_load(config, refuse);
      continue;
    }
    if (config.serving) refuse("requests over time", "quality, in a config of its own");
    if (config.timing) refuse("a group \"timing\"", "quality alone, in a config of its own");
    if (model.dtype == kAsStored) refuse("weights as stored", "\"bf16\", \"f16\" or \"f32\"");
    if (model.kv_dtype != model.dtype) refuse("a kv_dtype of its own", "a cache in the dtype of the weights");
  }
}

/// Refuses methods whose layers follow the memory of a batch where no batch has any.
void check_memory(const ExperimentConfig& config, const Validators& validators, Problems& problems) {
  for (const ComponentEntry& method : config.methods) {
    const bool follows =
        validators.follows_memory && validators.follows_memory(method.name, json::parse(method.settings_json));
    if (!follows) continue;
    const auto refuse = [&](const char* found) {
      problems.add("methods", fmt::format("{}, which follows the memory of a batch, and {}", method.label, found),
                   "\"timing\" with \"device_mib\", which the requests of a batch share");
    };
    if (!config.timing || !config.timing->device_mib) refuse("no limit of memory");
    if (config.serving || config.remote_prefix) refuse("a group \"serving\" or \"remote_prefix\"");
  }
}

void check_serving(const ServingSettings& serving, Problems& problems) {
  if (serving.load.empty()) problems.add("serving.load", "no point", "at least one");
  if (serving.arrivals == "clients") {
    for (const double clients : serving.load) {
      if (clients != std::floor(clients))
        problems.add("serving.load", fmt::format("{} clients", clients), "whole numbers");
    }
  }
  if (serving.arrivals != "poisson" && serving.burstiness != 1) {
    problems.add("serving.burstiness", fmt::format("{}", serving.burstiness), "nothing unless arrivals is \"poisson\"");
  }
  if (serving.arrivals != "sessions" && serving.think != 1) {
    problems.add("serving.think", fmt::format("{}", serving.think), "nothing unless arrivals is \"sessions\"");
  }
  if (serving.warmup + serving.cooldown >= serving.requests) {
    problems.add("serving.warmup", fmt::format("{} requests that do not count", serving.warmup + serving.cooldown),
                 fmt::format("fewer than the {} of a point, \"cooldown\" included", serving.requests));
  }
  if ((serving.arrivals == "trace") == serving.trace.empty()) {
    problems.add("serving.trace", serving.trace.empty() ? "nothing" : serving.trace,
                 serving.trace.empty() ? "a file of arrivals" : "nothing unless arrivals is \"trace\"");
  }
  if (serving.max_running >= serving.pass_tokens) {
    problems.add("serving.max_running", fmt::format("{}", serving.max_running),
                 fmt::format("fewer than the {} tokens of a pass", serving.pass_tokens));
  }
  std::vector<std::string> names = serving.points();
  std::ranges::sort(names);
  if (std::ranges::adjacent_find(names) != names.end()) problems.add("serving.load", "a point twice", "each once");
}

/// The settings that decide results, for the record: without the output's paths.
std::string canonical(const ExperimentConfig& config) {
  json whole = {{"name", config.name}, {"title", config.title}};
  for (ModelEntry model : config.models) {
    json entry = json::parse(model.parameters_json(/*placement=*/true));
    entry["name"] = model.name;
    entry["label"] = model.label;
    whole["models"].push_back(std::move(entry));
  }
  const auto components = [&](const char* key, const std::vector<ComponentEntry>& entries) {
    whole[key] = json::array();
    for (const ComponentEntry& component : entries) {
      json entry = json::parse(component.settings_json);
      entry["name"] = component.name;
      entry["label"] = component.label;
      if (component.limit) entry["limit"] = *component.limit;
      if (component.question) entry["question"] = name(*component.question);
      if (component.request_tokens) entry["request_tokens"] = request_tokens_json(*component.request_tokens);
      if (!component.batch_json.empty()) entry["batch"] = json::parse(component.batch_json);
      if (component.baseline) entry["baseline"] = true;
      if (!component.models.empty()) entry["models"] = component.models;
      whole[key].push_back(std::move(entry));
    }
  };
  components("workloads", config.workloads);
  components("methods", config.methods);
  components("metrics", config.metrics);
  EngineSettings engine = config.engine;
  whole["engine"] = parameter_values([&](ParameterVisitor& p) { engine.parameters(p); });
  if (config.timing) {
    TimingSettings timing = *config.timing;
    whole["timing"] = parameter_values([&](ParameterVisitor& p) { timing.parameters(p); });
  }
  if (config.remote_prefix) {
    RemotePrefixSettings links = *config.remote_prefix;
    whole["remote_prefix"] = parameter_values([&](ParameterVisitor& p) { links.parameters(p); });
  }
  if (config.serving) {
    ServingSettings serving = *config.serving;
    whole["serving"] = parameter_values([&](ParameterVisitor& p) { serving.parameters(p); });
  }
  if (config.contexts) whole["contexts"] = json::parse(contexts_json(*config.contexts));
  whole["table"] = json::parse(table_json(config.table));
  return whole.dump();
}

}  // namespace

const char* name(Question question) {
  switch (question) {
    case Question::seen: return "seen";
    case Question::unseen: return "unseen";
    case Question::turns: return "turns";
    case Question::first_seen: return "first_seen";
  }
  return "";
}

void ModelEntry::parameters(ParameterVisitor& p) {
  p("path", path).doc("checkpoint file (.gguf) or folder; relative to KVARENA_HOME");
  p("dtype", dtype)
      .one_of({"bf16", "f16", "f32", kAsStored})
      .doc("weights in memory; as stored: each as the checkpoint has it, GGUF's blocks too, with the results of f32");
  p("kv_dtype", kv_dtype)
      .one_of({"", "bf16", "f16", "f32"})
      .doc("entries of the full cache; empty = dtype, f32 beside weights as stored");
  p("arithmetic", arithmetic)
      .one_of({"exact", "bf16"})
      .doc(
          "products with weights and cache entries in bf16: of float32 numbers, or of these rounded to bf16, as other "
          "engines do it; on the processor");
  p("window", window).min(16).doc("longest prompt and output together, in tokens; absent = the checkpoint's own");
  p("template", chat_template).doc("chat template: auto (the checkpoint's own), none, or a name");
  p("thinking", thinking)
      .one_of({"auto", "on", "off"})
      .doc(
          "tells the chat template whether the model thinks before it answers (enable_thinking); auto = its own "
          "default");
  p("device", device)
      .one_of({"cpu", "cuda"})
      .doc(
          "where passes are computed; methods, and attention where they choose what is attended to, stay with the "
          "processor");
  p("devices", devices)
      .min(0)
      .doc(
          "numbers of the devices among which the model's layers are divided, each once, where `device` is cuda; "
          "empty = the first ones, as many as it needs; bits of results are the same for any");
  p("engine", engine)
      .one_of({"kvarena", "transformers", "vllm", "sglang", "llama.cpp", "openai"})
      .doc(
          "what computes: kvarena itself, or Hugging Face's transformers in a Python process (KVARENA_PYTHON), with "
          "full KV or, as the method \"kvpress\", any press of kvpress; of an endpoint what serves there, kvarena "
          "being `kvarena serve` and openai whatever else speaks that API");
  p("endpoint", endpoint)
      .doc(
          "address of a server that answers instead, \"http://127.0.0.1:8000\"; `path` then needs no weights, and "
          "methods are entries \"server\" (docs/endpoints.md)");
  p("model", served_name).doc("as the server names it; empty = the only one that it has");
  p("prompts", prompts)
      .one_of({"auto", "tokens", "text", "chat"})
      .doc(
          "sent to the server as token ids, as text, or as messages for its own template; auto = text to openai, else "
          "tokens");
  p("key_variable", key_variable).doc("environment variable that holds the server's key; empty = no key");
  p("request_timeout_s", request_timeout_s).min(1).doc("of one try of a request to the server");
  p("request_tries", request_tries)
      .min(1)
      .doc("of a request that meets a closed connection, a time-out, 408, 429 or 5xx, with longer and longer waits");
  p("requests_per_minute", requests_per_minute)
      .min(0)
      .doc("that the server is sent at most, evenly, for answers and scores, not for what is timed; 0 = no limit");
  p("concurrency", concurrency).min(1).max(1024).doc("samples that the server is asked at a time, for their answers");
}

bool ComponentEntry::runs_on(const std::string& model) const {
  return models.empty() || std::ranges::find(models, model) != models.end();
}

bool ComponentEntry::starts_server() const { return json::parse(settings_json).contains("start"); }

std::string ModelEntry::parameters_json(bool placement) const {
  ModelEntry copy = *this;
  json values = parameter_values([&](ParameterVisitor& p) { copy.parameters(p); });
  if (!placement || devices.empty()) values.erase("devices");
  if (device == "cpu") values.erase("device");
  if (arithmetic == "exact") values.erase("arithmetic");
  if (thinking == "auto") values.erase("thinking");
  if (!elsewhere()) values.erase("engine");
  for (const char* key : {"endpoint", "model", "prompts"}) {
    if (!behind_endpoint()) values.erase(key);
  }
  for (const char* key : {"key_variable", "request_timeout_s", "request_tries", "requests_per_minute", "concurrency"}) {
    values.erase(key);
  }
  return values.dump();
}

std::filesystem::path ModelEntry::file(const std::filesystem::path& home) const {
  const std::filesystem::path own = home / path;
  return std::filesystem::exists(own) ? own : hub_snapshot(hub_name(source)).value_or(own);
}

std::string ModelEntry::how_to_get(const std::filesystem::path& home) const {
  if (const std::string name = hub_name(source); !name.empty()) return fmt::format("hf download {}", name);
  return fmt::format("{}, into {}",
                     source.empty() ? "`scripts/setup` for the default model, others are yours to bring" : source,
                     (home / path).string());
}

void EngineSettings::parameters(ParameterVisitor& p) {
  p("threads", threads).min(0).doc("at most so many, fewer while others keep cores busy; 0 = one for each core");
  p("max_new_tokens", max_new_tokens).min(1).doc("absent = the workload's own");
  p("max_prompt_tokens", max_prompt_tokens)
      .min(1)
      .doc(
          "longer prompts are cut as the workload says (LongBench: 3500, 7500 or 31500 by model); absent = at what the "
          "window leaves beside the answer");
  p("seed", seed).min(0).doc("of sampling and of generated workloads");
  p("temperature", temperature)
      .min(0)
      .doc(
          "of answers, and of the distributions that KL compares (1 where greedy); 0 = greedy; absent = the workload's "
          "own");
  p("top_p", top_p).above(0).max(1).doc("probability mass that is sampled from; absent = the workload's own");
  p("draws", draws)
      .min(1)
      .max(1024)
      .doc(
          "answers to each sample, drawn with seeds from `seed` on: reports have their mean (avg@k) and whether any is "
          "right (pass@k); above 1 answers cannot be greedy");
  p("noise_floor", noise_floor)
      .min(0)
      .doc("samples of each workload that the baseline answers a second time, in chunks and batches of another shape");
  p("host_link", host_link)
      .doc(
          "link to host memory: real, which takes the time that copying takes, or an emulated one (pcie4_x16, "
          "ethernet_10g, ...), whose values reports mark");
  p("host_link_bytes_per_s", host_link_bytes_per_s)
      .above(0)
      .doc("another rate for an emulated link; pieces scale along");
  p("host_bytes", host_bytes).min(1).doc("host memory that caches may take; absent = no limit");
  p("disk_folder", disk_folder)
      .doc("where caches on the disk lie, read and written past the page cache; empty = there is no disk tier");
  p("chunk_tier", chunk_tier)
      .one_of({"device", "host", "disk"})
      .doc("where entries of chunks lie that methods of the reuse family bring back");
}

void TimingSettings::parameters(ParameterVisitor& p) {
  p("repeats", repeats).min(1).doc("timed runs of each sample; medians with spread are reported");
  p("warmup", warmup).min(0).doc("untimed runs before");
  p("samples", samples).min(1).doc("the first so many samples of each workload are timed");
  p("batch", batch)
      .min(1)
      .doc(
          "equal requests that are decoded together, unless a method says a \"batch\" of its own; latency is of a pass "
          "of all");
  p("device_mib", device_mib)
      .above(0)
      .doc("device memory for the batch's caches, MiB: requests that do not fit wait for others to end; absent = any");
  p("max_new_tokens", max_new_tokens).min(1).doc("absent = the engine's");
  p("ignore_eos", ignore_eos)
      .doc("answers of exactly max_new_tokens: neither an end of sequence nor a stop string ends one");
}

void RemotePrefixSettings::parameters(ParameterVisitor& p) {
  p("store", store)
      .doc(
          "address of a running `kvarena store`, HOST:PORT or a socket's path, that the caches lie in: they come over "
          "its socket; empty = in this process, where links are emulated");
  p("local_bytes_per_s", local_bytes_per_s)
      .min(0)
      .doc("of each local device's link to the store, which sends no faster; 0, with a \"store\" = as fast as it goes");
  p("remote_bytes_per_s", remote_bytes_per_s).min(0).doc("of each remote device's link to it, likewise");
  p("local_devices", local_devices).min(1).max(64).doc("devices of the local pool, each with timing.device_mib");
  p("remote_devices", remote_devices).min(1).max(64).doc("of the remote pool");
  p("local_decodes", local_decodes).doc("whether the local pool also decodes requests alone; else it only verifies");
  p("arrivals_per_s", arrivals_per_s).min(0).doc("of timing.batch requests, at random times; 0 = all at once");
  p("prompts", prompts)
      .min(1)
      .doc("distinct ones among the requests, which ask for them in turn; each is a sample of the workload");
}

void ServingSettings::parameters(ParameterVisitor& p) {
  p("arrivals", arrivals)
      .one_of({"poisson", "trace", "clients", "sessions"})
      .doc(
          "at random times, at the times of a trace, each client after its last answer, or recorded sessions, which "
          "the workload's samples are turns of");
  p("burstiness", burstiness)
      .above(0)
      .doc("of random times: shape of the gamma distribution of gaps; 1 = Poisson, below it requests come in bursts");
  p("trace", trace)
      .doc("file of arrivals \"trace\" (Azure, BurstGPT or Mooncake); its times are stretched to the load");
  p("think", think).min(0).doc("of sessions: factor on the times between an answer and the next turn");
  p("load", load)
      .above(0)
      .doc(
          "one point each: request rate as a share of what full KV serves when all requests wait; with clients, how "
          "many there are");
  p("requests", requests).min(1).doc("of each point, fewer when the workload has not so many samples");
  p("warmup", warmup).min(0).doc("the first so many requests of a point load the server and do not count");
  p("cooldown", cooldown).min(0).doc("the last so many, likewise");
  p("max_new_tokens", max_new_tokens).min(1).doc("absent = the engine's");
  p("ignore_eos", ignore_eos)
      .doc("answers of exactly max_new_tokens: neither an end of sequence nor a stop string ends one");
  p("shared_prefix", shared_prefix)
      .min(0)
      .doc(
          "tokens of a text that all prompts begin with, which a server behind an endpoint may keep; 0 = it is told to "
          "keep nothing of other prompts");
  p("cache_mib", cache_mib)
      .above(0)
      .doc("budget for the caches of all requests together, full ones that come back for a verification included");
  p("pass_tokens", pass_tokens).min(2).doc("decoding steps and prompt tokens of one pass together, at most");
  p("max_running", max_running).min(1).doc("requests admitted at a time; below pass_tokens");
  p("time_to_first_token_ms", time_to_first_token_ms).above(0).doc("objective of a request, queueing included");
  p("time_per_output_token_ms", time_per_output_token_ms).above(0).doc("objective of a request, mean after the first");
  p("attainment", attainment)
      .above(0)
      .max(1)
      .doc("share of requests that must meet both for a rate to count as served");
  p("score_share", score_share)
      .above(0)
      .max(1)
      .doc("an answer counts when it scores at least this share of full KV's mean score");
  p("hardware", hardware).doc("a machine of configs/hardware, or a file: the same loop on its modelled clock too");
  p("stored_prompts", stored_prompts)
      .doc(
          "prompts' caches are computed before the run and lie in host memory: a request loads full KV's over the "
          "host's link when it is admitted, or what a verifier with a \"schedule\" drafts on, beside full caches for "
          "verifications; on the measured clock alone");
}

void ContextSettings::parameters(ParameterVisitor& p) {
  p("device_share", device_share)
      .min(0)
      .doc(
          "room on the device, as a share of all contexts' uncompressed bytes, for caches that are ready for "
          "attention: requests begin with them at once; 0: none lie there");
  p("memory_share", memory_share).min(0).doc("room in memory, likewise");
  p("disk_share", disk_share).min(0).doc("room on the disk, likewise; the remote tier behind it has no limit");
  p("device_bytes", device_bytes)
      .min(0)
      .doc("room on the device in bytes, whatever the contexts take; absent = the share");
  p("memory_bytes", memory_bytes).min(0).doc("room in memory, likewise");
  p("disk_bytes", disk_bytes).min(0).doc("room on the disk, likewise");
  p("memory_bytes_per_s", memory_bytes_per_s)
      .min(0)
      .doc("rate of the link that a cache comes over from memory; 0, as for the others: as fast as it really is");
  p("disk_bytes_per_s", disk_bytes_per_s).min(0).doc("from the disk, unless its files really take longer");
  p("remote_bytes_per_s", remote_bytes_per_s).min(0).doc("from the remote tier, which lies in this process's memory");
  p("remote_latency_ms", remote_latency_ms).min(0).doc("before its first byte");
  p("train_questions", train_questions).min(1).doc("of each context, to profile its forms with");
  p("test_questions", test_questions).min(1).doc("of each context, that requests ask");
  p("questions", questions)
      .doc(
          "file with a row {\"context_id\", \"question\", \"split\": train or test} a question; empty: made from the "
          "contexts' own sentences");
  p("quality", quality).doc("a metric of texts: an answer scored against full KV's");
  p("popularity", popularity).min(0).doc("the i-th context is asked about in proportion to i^-popularity");
  p("popularity_shift", popularity_shift)
      .min(0)
      .doc("from half of the requests on, context i is asked about as context i - popularity_shift was before");
  p("past_requests", past_requests)
      .min(0)
      .doc(
          "requests by the same popularity that came before the first that counts: contexts are stored in the order of "
          "their last one, with as many uses");
  p("drift_answers", drift_answers).min(1).doc("newest answers of a context that its drift is measured by");
  p("profiling_answers", profiling_answers)
      .min(1)
      .doc("answers of profiling anew beside requests, at a time; absent = as many as max_running leaves room for");
}

std::vector<std::string> ServingSettings::points() const {
  std::vector<std::string> names;
  for (const double value : load) {
    names.push_back(arrivals == "clients" ? fmt::format("{} clients", value) : fmt::format("{}x", value));
  }
  return names;
}

void OutputSettings::parameters(ParameterVisitor& p) {
  p("database", database).doc("results database");
  p("report", report)
      .doc(
          "page that `kvarena run` writes at its end, and `kvarena report` unless told otherwise: html, md, tex or csv "
          "by its ending; empty = none");
}

void require_models(const ExperimentConfig& config, const std::filesystem::path& home) {
  std::vector<std::string> absent;
  for (const ModelEntry& model : config.models) {
    if (std::filesystem::exists(model.file(home))) continue;
    absent.push_back(describe({.place = fmt::format("model {}", model.name),
                               .found = fmt::format("no {}", (home / model.path).string()),
                               .expected = "a checkpoint folder or a .gguf file",
                               .action = fmt::format("get it: {}", model.how_to_get(home))}));
  }
  if (!absent.empty()) throw UserError(fmt::format("{}", fmt::join(absent, "\n")));
}

ExperimentConfig load_config(const std::filesystem::path& path, const LoadOptions& options,
                             const Validators& validators) {
  ExperimentConfig config = parse_config(read_file(path), path.string(), options, validators);
  config.path = path;
  return config;
}

ExperimentConfig parse_config(const std::string& text, const std::string& place, const LoadOptions& options,
                              const Validators& validators) {
  json whole = parse_json(text, place);
  if (!whole.is_object()) fail({.place = place, .found = brief(whole), .expected = "an object"});
  Problems problems(place);
  problems.append(apply_overrides(whole, options.overrides));

  ExperimentConfig config;
  config.text = text;
  config.overrides_json = overrides_json(options.overrides);
  check_keys(whole, problems);
  config.name = read_text(whole, "name", true, problems);
  config.title = read_text(whole, "title", false, problems);
  config.models = read_models(whole.value("models", json()), options.models_folder, problems);
  config.workloads =
      read_components(whole.value("workloads", json()), ComponentKind::workloads, validators.workloads, problems);
  config.methods =
      read_components(whole.value("methods", json()), ComponentKind::methods, validators.methods, problems);
  config.metrics =
      read_components(whole.value("metrics", json()), ComponentKind::metrics, validators.metrics, problems);
  if (whole.contains("engine")) read_group(whole["engine"], "engine", config.engine, problems);
  check_engine(config.engine, problems);
  if (whole.contains("timing")) read_group(whole["timing"], "timing", config.timing.emplace(), problems);
  if (whole.contains("remote_prefix")) {
    read_group(whole["remote_prefix"], "remote_prefix", config.remote_prefix.emplace(), problems);
    if (!config.timing)
      problems.add("remote_prefix", "no \"timing\" beside it", "how many requests come, and how often");
    const RemotePrefixSettings& links = *config.remote_prefix;
    if (links.store.empty() && (links.local_bytes_per_s == 0 || links.remote_bytes_per_s == 0))
      problems.add("remote_prefix", "a link without a rate and no \"store\"",
                   "a rate that is emulated, or the address of a `kvarena store`");
  }
  const auto of_length = std::ranges::find_if(
      config.workloads, [](const ComponentEntry& entry) { return entry.request_tokens.has_value(); });
  if (of_length != config.workloads.end() && !config.timing) {
    problems.add("workloads", fmt::format("\"request_tokens\" of {} and no \"timing\" beside them", of_length->label),
                 "a group \"timing\", which times requests of this length");
  }
  const auto with_batch =
      std::ranges::find_if(config.methods, [](const ComponentEntry& entry) { return !entry.batch_json.empty(); });
  if (with_batch != config.methods.end() && !config.timing) {
    problems.add("methods", fmt::format("\"batch\" of {} and no \"timing\" beside them", with_batch->label),
                 "a group \"timing\", which times so many requests together");
  }
  if (whole.contains("serving")) {
    read_group(whole["serving"], "serving", config.serving.emplace(), problems);
    check_serving(*config.serving, problems);
  }
  if (whole.contains("contexts")) {
    config.contexts = read_contexts(whole["contexts"], validators, problems);
    if (!config.serving) problems.add("contexts", "no \"serving\" beside it", "how requests about them arrive");
    if (config.serving && config.serving->stored_prompts)
      problems.add("serving.stored_prompts", "true beside \"contexts\"",
                   "one of them: contexts are stored by policies");
    if (config.serving && config.serving->arrivals == "sessions")
      problems.add("serving.arrivals", "\"sessions\" beside \"contexts\"", "arrivals of questions about contexts");
  }
  check_memory(config, validators, problems);
  check_engines(config, problems);
  if (whole.contains("output")) read_group(whole["output"], "output", config.output, problems);
  if (whole.contains("table")) config.table = read_table(whole["table"], problems);
  if (whole.contains("published")) config.published = read_published(whole["published"], problems);
  problems.throw_if_any();

  config.warnings = unmatched_published(config, place);
  for (std::string& warning : unmatched_labels(config, place)) config.warnings.push_back(std::move(warning));
  config.canonical_json = canonical(config);
  return config;
}

}  // namespace kvarena::experiment
