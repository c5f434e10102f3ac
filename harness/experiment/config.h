#pragma once
// An experiment as a user writes it: one JSON file. docs/experiments.md shows one; configs/schema.json describes
// it.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/core/parameters.h"
#include "harness/results/records.h"

namespace kvarena::experiment {

/// The dtype of weights that stay as their checkpoint stores them.
inline constexpr const char* kAsStored = "as stored";

/// A checkpoint and how it is run: configs/models/<name>.json, overridden by the experiment's entry.
struct ModelEntry {
  std::string name;
  std::string label;                   // unique; the name unless given
  std::string path;                    // file or folder; relative to the cache folder (LoadOptions::home)
  std::string dtype = "bf16";          // dtype of weights
  std::string kv_dtype;                // dtype of the full cache; "" = dtype, f32 beside weights as stored
  std::string arithmetic = "exact";    // exact, or bf16: products with bf16 round their other side
  std::optional<int64_t> window;       // tokens, prompt and output; absent = the checkpoint's own
  std::string chat_template = "auto";  // key "template": auto (the checkpoint's), none, or a name
  std::string thinking = "auto";       // told to the chat template: on, off; auto = its own default
  std::string device = "cpu";          // cpu or cuda; decides the last bits of results, and times
  std::vector<int64_t> devices;        // numbers of those that share the layers; empty = as many as the model needs
  /// kvarena; transformers: a Python process computes, with caches of its own; of an endpoint what serves there.
  std::string engine = "kvarena";
  std::string endpoint;             // address of a server that answers, "http://127.0.0.1:8000"; empty = none
  std::string served_name;          // key "model": as the server names it; empty = the only one that it has
  std::string prompts = "auto";     // sent to the server as tokens, text or chat
  std::string key_variable;         // environment variable that holds the server's key; empty = no key
  int64_t request_timeout_s = 600;  // of one try
  int64_t request_tries = 5;        // before a request has failed
  int64_t requests_per_minute = 0;  // at most, for answers and scores; 0 = without a limit
  int64_t concurrency = 1;          // samples that the server is asked at a time
  std::string source;               // where it comes from, huggingface.co/ORG/NAME; decides no result

  void parameters(ParameterVisitor& p);
  /// A JSON object of the members that decide a cell's results; `placement`: and of those that decide its times, which
  /// depend on the devices that share the model.
  [[nodiscard]] std::string parameters_json(bool placement) const;
  /// path as an absolute path under `home`, absolute paths stay; where nothing is there, the snapshot of `source` that
  /// Hugging Face's cache holds, if it does.
  [[nodiscard]] std::filesystem::path file(const std::filesystem::path& home) const;
  /// A command or words that say how to bring the checkpoint.
  [[nodiscard]] std::string how_to_get(const std::filesystem::path& home) const;
  [[nodiscard]] bool behind_endpoint() const { return !endpoint.empty(); }
  [[nodiscard]] bool elsewhere() const { return engine != "kvarena" || behind_endpoint(); }
};

/// How much of a prompt a method compresses, and what follows. `seen`: all of it. `unseen`: the context alone, of which
/// each question is asked afterwards on a copy of its own (kvpress; SCBench's multi-request mode). `turns`: the context
/// alone, then one question after the other, with reference answers between them. `first_seen`: the same, with the
/// first question compressed too (SCBench's multi-turn mode).
enum class Question { seen, unseen, turns, first_seen };
inline constexpr Question kQuestions[] = {Question::seen, Question::unseen, Question::turns, Question::first_seen};
[[nodiscard]] const char* name(Question question);
/// Whether a context's questions are turns of one conversation.
[[nodiscard]] constexpr bool in_turns(Question question) { return question >= Question::turns; }
/// Whether a context is compressed once for all questions about it.
[[nodiscard]] constexpr bool shares_context(Question question) { return question != Question::seen; }

/// Tokens of a timed request, prompt and answer, exactly.
struct RequestTokens {
  int64_t prompt = 0;
  int64_t answer = 0;
};

/// A workload, method or metric by its registered name with the settings written beside it.
struct ComponentEntry {
  std::string name;
  std::string label;                 // unique in its list; "kivi bits=2" unless given
  std::string settings_json = "{}";  // canonical JSON object, without the keys of the members below
  std::optional<int64_t> limit;      // workloads: at most so many samples
  std::optional<Question> question;  // workloads: absent = unseen where samples say where their question starts
  std::optional<RequestTokens> request_tokens;  // workloads: timed at this length, and nothing else
  std::string batch_json;                       // methods: a batch of its own (method_batch.h); "" = timing.batch
  bool baseline = false;                        // methods: the one others are paired with; exactly one is
  std::vector<std::string> models;              // methods: labels of those it runs on; empty = all

  [[nodiscard]] bool runs_on(const std::string& model) const;
  /// Whether it is a server's setting whose server the run starts itself, and ends before it starts another.
  [[nodiscard]] bool starts_server() const;
};

struct EngineSettings {
  int64_t threads = 0;                       // 0 = one for each core
  std::optional<int64_t> max_new_tokens;     // absent = the workload's own
  std::optional<int64_t> max_prompt_tokens;  // longer prompts are cut as the workload says; absent = what fits
  int64_t seed = 0;
  std::optional<double> temperature;  // 0 = greedy; absent = the workload's own
  std::optional<double> top_p;        // absent = the workload's own
  int64_t draws = 1;                  // answers to each sample, of seeds from `seed` on
  int64_t noise_floor = 4;            // samples of each workload that the baseline answers a second time; 0 = none
  std::string host_link = "real";     // between the device and host memory, by name
  std::optional<double> host_link_bytes_per_s;  // another rate for that link
  std::optional<int64_t> host_bytes;            // host memory for caches; absent = no limit
  std::string disk_folder;                      // folder of the disk tier; empty = no disk tier
  std::string chunk_tier = "device";            // tier of chunks' entries that later prompts reuse

  void parameters(ParameterVisitor& p);
};

/// Present when cells of kind timing are wanted beside those of kind quality.
struct TimingSettings {
  int64_t repeats = 5;
  int64_t warmup = 1;
  int64_t samples = 1;                    // the first so many of each workload
  int64_t batch = 1;                      // equal requests that are decoded together
  std::optional<double> device_mib;       // for their caches; absent = any
  std::optional<int64_t> max_new_tokens;  // absent = the engine's
  bool ignore_eos = false;                // answers have max_new_tokens, whatever ends them otherwise

  void parameters(ParameterVisitor& p);
};

/// Present when timing cells are of requests whose prompts' caches lie in a store, behind a fast link from the local
/// pool of devices and a slow one from the remote pool. Device memory is timing.device_mib, of each.
struct RemotePrefixSettings {
  std::string store;  // address of a `kvarena store`; "": this process's memory
  double local_bytes_per_s = 40e9;
  double remote_bytes_per_s = 1.2e9;
  int64_t local_devices = 1;
  int64_t remote_devices = 4;
  bool local_decodes = true;
  double arrivals_per_s = 0;  // 0 = all at once
  int64_t prompts = 1;        // distinct ones; requests ask for them in turn

  void parameters(ParameterVisitor& p);
};

/// Present when cells of kind serving are wanted: requests that arrive over time, at several loads. Each load is a
/// point of its own, with samples of the workload that no other point sees, unless they are stored contexts.
struct ServingSettings {
  std::string arrivals = "poisson";  // poisson, trace, clients or sessions
  double burstiness = 1;             // of arrivals "poisson": shape of the gaps' gamma distribution
  std::string trace;                 // for arrivals "trace": an Azure, BurstGPT or Mooncake file
  double think = 1;                  // of arrivals "sessions": factor on recorded think times
  std::vector<double> load = {0.5, 0.9, 1.2};
  int64_t requests = 32;                  // requests of each point, fewer when the workload has too few samples
  int64_t warmup = 0;                     // the first so many requests of a point load the server and do not count
  int64_t cooldown = 0;                   // the last so many, likewise
  std::optional<int64_t> max_new_tokens;  // absent = the engine's
  bool ignore_eos = false;                // answers have max_new_tokens, whatever ends them otherwise
  int64_t shared_prefix = 0;              // tokens that all prompts begin with, which a server may keep
  double cache_mib = 1024;
  int64_t pass_tokens = 512;
  int64_t max_running = 32;
  double time_to_first_token_ms = 2000;  // objectives of latency
  double time_per_output_token_ms = 200;
  double attainment = 0.9;
  double score_share = 0.8;
  std::string hardware;         // machine of the modelled clock; "" = measured only
  bool stored_prompts = false;  // prompts' caches are there before the run, and are loaded when requests come

  void parameters(ParameterVisitor& p);
  /// Names of the points, in order: ids of the cell's samples.
  [[nodiscard]] std::vector<std::string> points() const;
};

/// Present when serving cells ask about stored contexts: a workload's samples are contexts, each asked about many
/// times, whose caches lie on tiers of storage. Methods are policies that place them, and full KV, which stores
/// nothing.
struct ContextSettings {
  std::vector<ComponentEntry> forms;  // methods that a policy may choose among, beside leaving a context as it is
  double device_share = 0;            // room for ready caches on the device, of all contexts' uncompressed bytes
  double memory_share = 0.1;          // room in memory, likewise
  double disk_share = 1;
  std::optional<int64_t> device_bytes;  // instead of the share
  std::optional<int64_t> memory_bytes;
  std::optional<int64_t> disk_bytes;
  double memory_bytes_per_s = 0;  // rate of a read; 0: not emulated
  double disk_bytes_per_s = 0;
  double remote_bytes_per_s = 1e9;  // nothing here is remote
  double remote_latency_ms = 1;
  int64_t train_questions = 2;  // questions of each context to profile it with
  int64_t test_questions = 4;
  std::string questions;                         // a file of questions; "": made from the contexts' own sentences
  std::string quality = "embedding_similarity";  // the metric that compares an answer with full KV's
  int64_t past_requests = 0;                     // requests before the first that counts
  double popularity = 1;                         // the i-th context is asked about in proportion to i^-popularity
  int64_t popularity_shift = 0;                  // halfway, context i is asked about as i - popularity_shift was
  int64_t drift_answers = 3;
  std::optional<int64_t> profiling_answers;  // at a time, of profiling anew; absent: as many as max_running leaves

  /// Whether contexts lie on the device too.
  [[nodiscard]] bool on_device() const { return device_bytes.value_or(0) > 0 || (!device_bytes && device_share > 0); }
  void parameters(ParameterVisitor& p);
};

/// Output files; paths are relative to the working folder.
struct OutputSettings {
  std::string database = "results.db";
  std::string report;  // "" = none

  void parameters(ParameterVisitor& p);
};

/// The table of scores that reports draw. Dimensions: experiment, model, workload, method, metric.
struct TableShape {
  std::vector<std::string> rows = {"model", "method"};
  std::vector<std::string> columns = {"workload"};
  /// Lines that may name mean, interval (half its width), low, high, n, difference, published.
  std::string cell = "{mean}\n({low} – {high})\n{difference}";
  bool average = false;  // one more column: the mean over the others
};

struct ExperimentConfig {
  std::string name;
  std::string title;
  std::vector<ModelEntry> models;
  std::vector<ComponentEntry> workloads;
  std::vector<ComponentEntry> methods;
  std::vector<ComponentEntry> metrics;
  EngineSettings engine;
  std::optional<TimingSettings> timing;
  std::optional<RemotePrefixSettings> remote_prefix;
  std::optional<ServingSettings> serving;
  std::optional<ContextSettings> contexts;
  OutputSettings output;
  TableShape table;
  std::vector<results::PublishedValue> published;

  std::filesystem::path path;         // the file
  std::string text;                   // the file, byte for byte
  std::string overrides_json;         // overrides from the command line
  std::string canonical_json;         // with overrides applied and matrices expanded
  std::vector<std::string> warnings;  // finished messages; published values that no cell can meet
};

/// Problems of one entry's settings, as finished messages that start with `place` and the key. `settings` holds the
/// component's own keys only. An unknown name is a problem too (with the nearest known one).
using Validator = std::function<std::vector<std::string>(const std::string& name, const nlohmann::json& settings,
                                                         const std::string& place)>;

/// Checks of methods, workloads and metrics, which this folder does not know.
struct Validators {
  Validator methods;
  Validator workloads;
  Validator metrics;
  /// Whether a method without problems follows the memory of a batch.
  std::function<bool(const std::string& name, const nlohmann::json& settings)> follows_memory;
};

/// Changes of a config from the command line.
struct Overrides {
  std::vector<std::string> set;     // "engine.seed=3", "methods[1].keep=0.2", "methods.snapkv.keep=0.2"
  std::vector<std::string> models;  // names; not empty = instead of the config's
  std::optional<int64_t> limit;     // for every workload
  std::optional<std::string> database;
};

struct LoadOptions {
  std::filesystem::path models_folder;  // configs/models
  Overrides overrides;
};

/// Reads, overrides, expands and checks. Throws UserError with one problem a line, all of them at once; a syntax error
/// names line and column.
[[nodiscard]] ExperimentConfig load_config(const std::filesystem::path& path, const LoadOptions& options,
                                           const Validators& validators);

/// load_config() of text that is no file; `place` stands for the file in messages.
[[nodiscard]] ExperimentConfig parse_config(const std::string& text, const std::string& place,
                                            const LoadOptions& options, const Validators& validators);

/// Throws UserError that names every model whose checkpoint is absent, and how to bring it.
void require_models(const ExperimentConfig& config, const std::filesystem::path& home);

}  // namespace kvarena::experiment
