// kvarena audit: whether a method is lossless, and whether what it loses is more than noise.

#include "harness/evaluate/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/method_spec.h"
#include "harness/cli/model_input.h"
#include "harness/cli/texts.h"
#include "harness/core/error.h"
#include "harness/core/page.h"
#include "harness/method/registry.h"
#include "harness/method/verifier.h"
#include "metrics/stored_metrics.h"

namespace kvarena::cli {
namespace {

using evaluate::AnswerTrace;
using nlohmann::json;

struct Options {
  std::string method;
  ModelOptions model;
  std::string data = "essays";
  int64_t prompts = 4;
  int64_t context = 512;
  int64_t tokens = 200;
  double temperature = 0;
  int64_t seed = 1;
  bool as_json = false;

  void declare(OptionSet& o) {
    o.positional("METHOD", method).help("JSON or NAME:key=value,...");
    model.declare(o);
    o.option("data", "DATA", data)
        .help("texts to go on with: a workload's name, a text file, a folder of .txt files, or essays");
    o.option("prompts", "N", prompts).help("so many texts");
    o.option("context", "N", context).help("tokens of each that are the prompt");
    o.option("tokens", "N", tokens).help("tokens of the answers");
    o.option("temperature", "T", temperature).help("above 0 the tokens are drawn, by both alike");
    o.option("seed", "N", seed).help("of essays and draws");
    o.flag("json", as_json).help("for programs");
  }
  void check() const {
    for (const auto& [name, value] :
         {std::pair{"--prompts", prompts}, std::pair{"--context", context}, std::pair{"--tokens", tokens}}) {
      if (value < 1) fail({.place = name, .found = fmt::format("{}", value), .expected = "at least 1"});
    }
    if (temperature < 0) {
      fail({.place = "--temperature", .found = fmt::format("{}", temperature), .expected = "0 or more"});
    }
  }
  [[nodiscard]] SessionOptions session(const OpenedModel& model) const {
    return {.stop = {.max_new_tokens = tokens},
            .sampling = {.temperature = temperature, .seed = static_cast<uint64_t>(seed)},
            .tokenizer = model.tokenizer.get()};
  }
};

/// Reference of the method: plain decoding on the cache that a verifier verifies on, else on full KV.
Nested<Method> reference_of(const Method& method) {
  return method.verifier() == nullptr ? Nested<Method>() : method.verifier()->verified_cache();
}

std::vector<std::vector<int32_t>> prompts_of(const Options& options, const OpenedModel& model) {
  std::vector<std::vector<int32_t>> prompts;
  const TextRequest wanted{
      .data = options.data, .count = options.prompts, .tokens = options.context, .seed = options.seed};
  for (const std::string& text : read_texts(wanted, model)) {
    std::vector<int32_t>& tokens = prompts.emplace_back(model.tokenizer->encode(text));
    if (static_cast<int64_t>(tokens.size()) > options.context) tokens.resize(static_cast<size_t>(options.context));
    if (tokens.empty()) prompts.pop_back();
  }
  if (prompts.empty()) fail({.place = "--data", .found = options.data + ": no text", .expected = "some to go on with"});
  return prompts;
}

/// One prompt, answered by the reference and by the method.
struct Audited {
  AnswerTrace reference;
  evaluate::Divergence method;
  evaluate::Divergence again;  // the reference under another arithmetic
};

/// The other type that a cache may be kept in.
std::string other_dtype(const ModelOptions& options) {
  return options.types().cache == kernels::DType::f32 ? "bf16" : "f32";
}

/// Fills in what the reference says under another arithmetic: its cache in another type, its prompts cut elsewhere.
std::vector<std::vector<double>> measure_noise(const Options& options, const OpenedModel& model,
                                               const Method& reference,
                                               const std::vector<std::vector<int32_t>>& prompts,
                                               std::vector<Audited>& audited) {
  ModelOptions other = options.model;
  other.kv_dtype = other_dtype(options.model);
  Transformer transformer = load_weights(model, other);
  const auto facts = facts_of(model, transformer, other);
  std::vector<std::vector<double>> shifts;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Prefill prompt = prefill(transformer, prompts[i], reference.needs(), kPrefillChunk / 2, facts);
    shifts.push_back(evaluate::gap_shifts(transformer, prompt, reference, audited[i].reference));
    const AnswerTrace again = evaluate::trace_answer(transformer, prompt, reference, options.session(model));
    audited[i].again = evaluate::first_difference(audited[i].reference, again);
  }
  return shifts;
}

json report(const Options& options, const json& asked, const json& reference, const std::vector<Audited>& audited,
            double floor) {
  json prompts = json::array();
  int64_t equal = 0;
  int64_t same_bits = 0;
  int64_t noisy = 0;
  int64_t explained = 0;
  for (const Audited& one : audited) {
    equal += one.method.step ? 0 : 1;
    same_bits += one.method.same_bits && !one.method.step ? 1 : 0;
    noisy += one.again.step ? 1 : 0;
    json row = {{"tokens", one.reference.tokens.size()}, {"same_logits", one.method.same_bits}};
    row[metrics::kFirstDivergence.name] = one.method.step ? json(*one.method.step) : json(nullptr);
    row["noise_divergence"] = one.again.step ? json(*one.again.step) : json(nullptr);
    if (one.method.step) {
      const bool noise = one.method.gap <= floor;
      explained += noise ? 1 : 0;
      row["gap"] = one.method.gap;
      row["within_noise"] = noise;
    }
    prompts.push_back(std::move(row));
  }
  const auto diverged = static_cast<int64_t>(audited.size()) - equal;
  return {{"method", asked},         {"reference", reference},   {"temperature", options.temperature},
          {"prompts", prompts},      {"equal_tokens", equal},    {"equal_logits", same_bits},
          {"diverged", diverged},    {"noise_floor", floor},     {"noise_dtype", other_dtype(options.model)},
          {"noise_diverged", noisy}, {"within_noise", explained}};
}

/// Sums the numbers up in a sentence.
std::string verdict(const json& audit) {
  const auto count = static_cast<int64_t>(audit["prompts"].size());
  const auto beyond = audit["diverged"].get<int64_t>() - audit["within_noise"].get<int64_t>();
  if (audit["equal_logits"] == count) return "Lossless on these prompts: every logit has the reference's bits.";
  if (audit["diverged"] == 0) return "Every answer is the reference's; the logits behind them differ.";
  if (beyond == 0) return "Answers part from the reference's, and only where noise could have parted them.";
  return fmt::format("{} of {} answers part from the reference's where noise does not explain it.", beyond, count);
}

void print_text(const json& audit) {
  const auto count = audit["prompts"].size();
  print(fmt::format("{} beside {}, {} prompts\n\n", audit["method"].dump(), audit["reference"].dump(), count));
  std::vector<std::vector<std::string>> rows = {{"prompt", "tokens", "first divergence", "gap there", "logits"}};
  for (size_t i = 0; i < count; ++i) {
    const json& one = audit["prompts"][i];
    const bool parts = !one[metrics::kFirstDivergence.name].is_null();
    rows.push_back(
        {fmt::format("{}", i + 1), one["tokens"].dump(), parts ? one[metrics::kFirstDivergence.name].dump() : "none",
         parts ? fmt::format("{:.4f}{}", one["gap"].get<double>(), one["within_noise"] ? ", noise" : "") : "",
         one["same_logits"] ? "the same bits" : "differ"});
  }
  print(Page().columns(rows));
  print(fmt::format("\n{}\n{} of {} answers are equal, {} of them bit for bit.\n", verdict(audit),
                    audit["equal_tokens"].get<int64_t>(), count, audit["equal_logits"].get<int64_t>()));
  print(
      fmt::format("Noise: with the cache in {} the reference itself parts in {} of {}; its top-2 gap moves by up to "
                  "{:.4f} (99% of steps).\n",
                  audit["noise_dtype"].get<std::string>(), audit["noise_diverged"].get<int64_t>(), count,
                  audit["noise_floor"].get<double>()));
  if (audit["diverged"].get<int64_t>() > 0) {
    print(fmt::format("{} of {} divergences lie within it.\n", audit["within_noise"].get<int64_t>(),
                      audit["diverged"].get<int64_t>()));
  }
}

int run(const Options& options) {
  options.check();
  const json asked = parse_method_spec(options.method, "METHOD");
  const auto method = make_method(asked, "METHOD");
  const Nested<Method> verified = reference_of(*method);
  const json reference_spec = verified ? json::parse(verified.settings()) : json("full KV");
  const auto reference = verified ? verified.shared() : std::make_shared<const Method>();

  const OpenedModel model = open_chosen(options.model);
  const std::vector<std::vector<int32_t>> prompts = prompts_of(options, model);
  std::vector<Audited> audited;
  {
    Transformer transformer = load_weights(model, options.model);
    const auto facts = facts_of(model, transformer, options.model);
    for (const std::vector<int32_t>& tokens : prompts) {
      const Prefill prompt =
          prefill(transformer, tokens, combine(method->needs(), reference->needs()), kPrefillChunk, facts);
      Audited& one = audited.emplace_back();
      one.reference = evaluate::trace_answer(transformer, prompt, *reference, options.session(model));
      const AnswerTrace answer = evaluate::trace_answer(transformer, prompt, *method, options.session(model));
      one.method = evaluate::first_difference(one.reference, answer);
    }
  }  // the weights are gone before they are loaded again
  const auto shifts = measure_noise(options, model, *reference, prompts, audited);
  const json audit = report(options, asked, reference_spec, audited, evaluate::noise_floor(shifts));
  if (options.as_json) {
    print(audit.dump(2) + "\n");
  } else {
    print_text(audit);
  }
  return 0;
}

}  // namespace

Command audit_command() {
  return make_command<Options>(
      {.name = "audit",
       .summary = "whether a method says what full KV says, and whether a difference is more than noise",
       .description =
           "Prompts are answered by the method and by its reference: full KV, or plain decoding on the cache "
           "that a verifier says it verifies on. Results here do not depend on batches, chunks or threads, so "
           "the noise floor is what another type of the cache's entries does to the reference: how far it "
           "moves the gap between the two likeliest tokens. A divergence where that gap is smaller could have "
           "been noise; one where it is larger is the method's.",
       .examples = {{"kvarena audit METHOD --prompts 20 --tokens 200", "essays, the default model"}}},
      run);
}

}  // namespace kvarena::cli
