// kvarena serve: a model under methods behind an OpenAI-compatible endpoint.

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/cli/commands.h"
#include "harness/cli/method_spec.h"
#include "harness/cli/model_input.h"
#include "harness/cli/registry_text.h"
#include "harness/core/error.h"
#include "harness/core/page.h"
#include "harness/core/terminal.h"
#include "harness/experiment/runner.h"
#include "harness/method/registry.h"
#include "harness/serve/http_server.h"

namespace kvarena::cli {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;
constexpr int64_t kSpareConnections = 32;  // for whoever asks for metrics, or is refused

struct Options {
  ModelOptions model;
  std::vector<std::string> methods;
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  int64_t cache_mib = 4096;
  int64_t reuse_mib = 1024;
  int64_t pass_tokens = 512;
  int64_t max_running = 64;
  int64_t max_waiting = 256;
  int64_t max_tokens = 1024;
  int64_t max_body_mib = 8;
  double timeout_s = 600;
  double grace_s = 30;

  void declare(OptionSet& o) {
    model.declare(o);
    o.option("method", "METHOD", methods)
        .help("JSON or NAME:key=value,...; any number of them, each as the model MODEL@METHOD")
        .default_text("none beside full KV, the plain name");
    o.option("host", "ADDRESS", host).help("address to bind; others than this machine's own need a key");
    o.option("port", "N", port).help("0: any that is free");
    o.option("cache-mib", "N", cache_mib).help("budget for the caches of all requests under way");
    o.option("reuse-mib", "N", reuse_mib)
        .help("entries that each method of reuse keeps for later requests; the least recently used go first");
    o.option("pass-tokens", "N", pass_tokens).help("tokens of one pass, steps and prompts together");
    o.option("max-running", "N", max_running).help("requests in passes");
    o.option("max-waiting", "N", max_waiting).help("requests beside these; more are refused with 429");
    o.option("max-tokens", "N", max_tokens).help("tokens of an answer at most");
    o.option("max-body-mib", "N", max_body_mib).help("a request's body at most");
    o.option("timeout", "SECONDS", timeout_s).help("a request's time, waiting included");
    o.option("grace", "SECONDS", grace_s).help("time for requests under way after SIGINT or SIGTERM");
  }

  void check() const {
    const auto within = [](const char* option, auto value, auto least, auto most) {
      if (value >= least && value <= most) return;
      fail({.place = fmt::format("--{}", option),
            .found = fmt::format("{}", value),
            .expected = fmt::format("from {} to {}", least, most)});
    };
    within("port", port, int64_t{0}, int64_t{65535});
    within("cache-mib", cache_mib, int64_t{1}, int64_t{1} << 30);
    within("reuse-mib", reuse_mib, int64_t{0}, int64_t{1} << 30);
    within("max-running", max_running, int64_t{1}, int64_t{4096});
    within("max-waiting", max_waiting, int64_t{0}, int64_t{4096});
    within("max-tokens", max_tokens, int64_t{1}, int64_t{1} << 24);
    within("max-body-mib", max_body_mib, int64_t{1}, int64_t{1024});
    within("timeout", timeout_s, 0.001, 1e6);
    within("grace", grace_s, 0.0, 1e6);
  }
};

serve::ServedModels served_models(const Options& options) {
  serve::ServedModels models(model_name(find_model(options.model.model)), options.reuse_mib * kMebi);
  for (const std::string& written : options.methods) {
    const nlohmann::json spec = parse_method_spec(written, "--method");
    models.add(written, spec.dump(), make_method(spec, "--method"));
  }
  return models;
}

/// The key of KVARENA_SERVE_KEY. Throws UserError where strangers could ask without one.
std::string key_for(const Options& options) {
  const char* given = std::getenv("KVARENA_SERVE_KEY");
  const std::string key = given == nullptr ? "" : given;
  if (key.empty() && !serve::is_loopback(options.host)) {
    fail({.place = fmt::format("--host {}", options.host),
          .found = "no key",
          .expected = "one in KVARENA_SERVE_KEY, since others can reach this address"});
  }
  return key;
}

int run(const Options& options) {
  options.check();
  const std::string key = key_for(options);
  const serve::ServedModels models = served_models(options);
  const OpenedModel model = open_chosen(options.model);
  const experiment::InterruptGuard guard("answering what is under way; once more stops at once");
  Transformer transformer = load_weights(model, options.model);
  auto facts = facts_of(model, transformer, options.model);
  models.open_helpers(transformer, facts->file);
  const serve::ModelText text{.tokenizer = *model.tokenizer,
                              .chat_template = model.chat_template,
                              .stop_tokens = stop_tokens(model),
                              .window = model.config.max_position,
                              .vocab_size = model.config.vocab_size};
  serve::ServerMetrics metrics;
  serve::LiveEngine engine(transformer, std::move(facts),
                           {.batch = {.cache_bytes = options.cache_mib * kMebi,
                                      .pass_tokens = options.pass_tokens,
                                      .max_running = options.max_running},
                            .most_waiting = options.max_waiting,
                            .timeout_s = options.timeout_s},
                           metrics);
  serve::HttpServer server(engine, models, text, metrics,
                           {.host = options.host,
                            .port = static_cast<int>(options.port),
                            .key = key,
                            .most_body_bytes = options.max_body_mib * kMebi,
                            .connections = options.max_running + options.max_waiting + kSpareConnections,
                            .limits = {.max_tokens = options.max_tokens}});
  const int port = server.start();
  for (const serve::ServedModel& served : models.all()) print(fmt::format("{}\n", served.name));
  const bool v6 = options.host.find(':') != std::string::npos;
  print(fmt::format("http://{}:{}/v1\n", v6 ? fmt::format("[{}]", options.host) : options.host, port));
  flush_output();
  while (!experiment::InterruptGuard::flag()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  engine.stop(options.grace_s);
  server.stop();
  return 0;
}

}  // namespace

Command serve_command() {
  return make_command<Options>(
      {.name = "serve",
       .summary = "a model under methods, behind an OpenAI-compatible endpoint",
       .description =
           "Answers POST /v1/completions and /v1/chat/completions, whole or streamed, in the batches of the harness's "
           "serving loop; docs/serve.md has the fields. The plain name of the model keeps everything, MODEL@METHOD is "
           "the model under a method. Prints the names and the address, and answers until SIGINT or SIGTERM. "
           "KVARENA_SERVE_KEY is the key that clients must send, if any.",
       .examples = {{fmt::format("kvarena serve --method {}", example_method()), "full KV and a method, on port 8000"},
                    {"kvarena serve --model model.gguf --port 0", "full KV alone, on a free port"}}},
      run);
}

}  // namespace kvarena::cli
