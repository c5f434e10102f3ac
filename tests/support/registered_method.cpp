#include "tests/support/registered_method.h"

#include <fmt/format.h>
#include <unistd.h>

#include "harness/core/error.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/method/stream_codec.h"
#include "tests/support/tiny_adapter.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena::testing {
namespace {

/// A folder of this process, filled by `write` and gone with it.
class ProcessFolder {
 public:
  ProcessFolder(const std::string& name, void (*write)(const std::string& path))
      : path_((std::filesystem::temp_directory_path() / (name + "-" + std::to_string(::getpid()))).string()) {
    write(path_);
  }
  ~ProcessFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ProcessFolder(const ProcessFolder&) = delete;
  ProcessFolder& operator=(const ProcessFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

const std::string& drafting_model() {
  static const ProcessFolder folder("kvarena-drafter", [](const std::string& path) { write_tiny_model(path, 2); });
  return folder.path();
}

const std::string& restoring_adapter() {
  static const ProcessFolder folder("kvarena-adapter",
                                    [](const std::string& path) { write_tiny_adapter(path, path + "/base", 4); });
  return folder.path();
}

json active_settings(const MethodEntry& entry) {
  json spec = {{"name", entry.info.name}};
  if (entry.info.name == "infllm") spec.update({{"init", 8}, {"local", 64}, {"block", 16}, {"topk", 4}, {"exec", 32}});
  if (entry.info.name == "minference") spec.update({{"vertical", 30}, {"slash", 60}});
  if (entry.info.name == "flexprefill") spec.update({{"gamma", 0.7}, {"min_budget", 32}, {"block", 32}});
  if (entry.info.name == "xattention") spec["threshold"] = 0.3;
  if (entry.info.name == "skip_softmax") spec.update({{"scale", 100}, {"block", 16}});
  if (entry.info.name == "commvq") spec["code_bits"] = 4;  // books that are fitted in no time
  if (entry.info.name == "leank") spec.update({{"round_to", 8}, {"sinks", 4}, {"recent", 16}, {"block", 16}});
  if (entry.info.name == "simlayerkv") spec.update({{"threshold", 0.01}, {"recent", 100}});
  if (entry.info.name == "vattention" || entry.info.name == "hashattention")
    spec.update({{"sinks", 4}, {"window", 16}});
  if (entry.info.name == "magicpig") spec["dense_every"] = 0;  // the first of few layers would attend to everything
  if (entry.info.name == "tool_results") spec["newest"] = 1;
  if (entry.info.name == "restorekv") spec["weights"] = restoring_adapter();
  if (entry.info.name == "less_is_more") spec["dense_layers"] = 0;  // of three layers the last one would choose
  for (const ParameterInfo& parameter : entry.parameters()) {
    if (parameter.name == "local" && entry.family == Family::prefill) spec.update({{"sinks", 16}, {"local", 64}});
    if (parameter.name == "keep") spec["keep"] = 0.5;
    if (parameter.name == "draft_model") spec["draft_model"] = drafting_model();
    if (parameter.name == "chunk" && entry.family == Family::reuse) spec["chunk"] = 64;
    if (parameter.name == "recovery") spec["recovery"] = 0.5;
    if (parameter.name == "outliers" && entry.family == Family::retrieval) spec["outliers"] = 4;
    if (parameter.name == "drafter") spec["drafter"] = {{"name", "streaming_llm"}, {"keep", 0.5}};
  }
  return spec;
}

ModelConfig sliding_config() {
  ModelConfig config = tiny_config();
  config.layers = 5;
  config.sliding_window = 96;
  config.sliding_layers = {true, false, true, false, false};
  return config;
}

RegisteredMethod::RegisteredMethod()
    : model_(is_hybrid() ? hybrid_model() : tiny_model(1, {}, slides() ? sliding_config() : tiny_config())),
      facts_(model_facts(model_, {fitted_folder()})) {}

std::filesystem::path RegisteredMethod::fitted_folder() {
  return std::filesystem::temp_directory_path() / fmt::format("kvarena_registered_{}_{}", GetParam(), getpid());
}

void RegisteredMethod::SetUp() {
  const auto method = make_method(active_settings(entry()), "test");
  if (slides() && method->pruner() != nullptr) GTEST_SKIP() << "layers that forget cannot be pruned";
  const bool restores = !method->needs().restorations.empty();
  if (slides() && restores) GTEST_SKIP() << "the adapter is another model's";
  const auto fitter = method->fitter();
  if (is_hybrid() && (method->reuser() != nullptr || method->pruner() != nullptr || restores)) {
    expect_refused(*method);
    GTEST_SKIP() << "needs layers that all hold entries";
  }
  if (const auto* stream = dynamic_cast<const StreamCodecMethod*>(method.get()); stream && fitter == nullptr) {
    try {
      (void)stream->codec().coder(facts_.get());
    } catch (const UserError& error) {
      GTEST_SKIP() << error.what();  // a library that this build lacks
    }
  }
  if (fitter == nullptr) return;
  Progress quiet({.style = ProgressOptions::Style::quiet});
  (void)fit(model_, facts_, *fitter,
            {.texts = {tiny_prompt(90, 1), tiny_prompt(120, 2)},
             .output = fitted_folder() / "tiny" / (fitter->artifact().stem() + ".safetensors")},
            quiet);
}

void RegisteredMethod::expect_refused(const Method& method) {
  Activity activity;
  try {
    const Prefill start = prefill(model_, tiny_prompt(90), method.asks(), kPrefillChunk, facts_);
    (void)state_after_prompt(model_, start, method, activity);
    ADD_FAILURE() << GetParam() << " was not refused";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("a model whose layers all hold entries"), std::string::npos)
        << error.what();
  }
}

Prefill RegisteredMethod::prompt(int64_t tokens, uint64_t seed) {
  Prefill prompt = prefill(model_, tiny_prompt(tokens, seed), make_method(active_settings(entry()), "test")->asks(),
                           kPrefillChunk, facts_);
  for (int64_t begin = 10; begin < tokens; begin += 40) prompt.layout.results.push_back({begin, begin + 20, "tool"});
  return prompt;
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const MethodEntry& entry : method_registry()) names.push_back(entry.info.name);
  return names;
}

std::vector<std::string> method_names_on(std::string_view layers) {
  std::vector<std::string> names = method_names();
  for (std::string& name : names) name += layers;
  return names;
}

}  // namespace kvarena::testing
