// kvarena reuse: what methods that reuse entries save and cost on one prompt.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/cli/commands.h"
#include "harness/cli/method_spec.h"
#include "harness/cli/model_input.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "harness/core/page.h"
#include "harness/engine/reuse/deviation.h"
#include "harness/engine/reuse/speculation.h"
#include "harness/engine/session/prefill.h"
#include "harness/engine/session/session.h"
#include "harness/evaluate/token_overlap.h"
#include "harness/model/tokenizer/token_ranges.h"
#include "metrics/distribution/divergence.h"
#include "metrics/statistics.h"
#include "metrics/stored_metrics.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

struct Options {
  ModelOptions model;
  std::filesystem::path file;
  int64_t context = 4096;
  std::string question = "\n\nQuestion: What is the text about?\nAnswer:";
  std::vector<std::string> methods;
  int64_t repeats = 3;
  int64_t answer = 0;
  std::optional<std::string> speculative;
  double top = 0.2;
  bool spans = false;
  bool as_json = false;

  void declare(OptionSet& o) {
    o.option("prompt-file", "FILE", file).help("a text whose first tokens are the context").required();
    o.option("method", "METHOD", methods).help("JSON or NAME:key=value,...");
    model.declare(o);
    o.option("context", "N", context).help("tokens of the context");
    o.option("question", "TEXT", question)
        .help("what comes behind the context and is always computed")
        .default_text("what the text is about");
    o.option("repeats", "N", repeats).help("timed runs of each method, taking turns; medians are printed");
    o.option("speculative", "MODEL", speculative).help("compare its important tokens with the model's own");
    o.option("top", "SHARE", top).help("share of tokens that count as important");
    o.option("answer", "N", answer).help("print full KV's answer and each method's, of at most so many tokens");
    o.flag("spans", spans).help("print the text that each method computes anew");
    o.flag("json", as_json).help("for programs, by layer and with that text too");
  }

  void check() const {
    if (context < 1) fail({.place = "--context", .found = fmt::format("{}", context), .expected = "at least 1"});
    if (repeats < 1) fail({.place = "--repeats", .found = fmt::format("{}", repeats), .expected = "at least 1"});
    if (answer < 0) fail({.place = "--answer", .found = fmt::format("{}", answer), .expected = "at least 0"});
    if (top <= 0 || top > 1) {
      fail({.place = "--top", .found = fmt::format("{}", top), .expected = "above 0 and at most 1"});
    }
  }
};

/// The prompt and how it is put together.
struct Assembled {
  std::vector<int32_t> tokens;
  PromptLayout layout;
};

Assembled assemble(const Options& options, const Tokenizer& tokenizer) {
  std::vector<int32_t> context = tokenizer.encode(read_file(options.file));
  if (static_cast<int64_t>(context.size()) < options.context) {
    fail({.place = options.file.string(),
          .found = fmt::format("{} tokens", context.size()),
          .expected = fmt::format("at least {}", options.context),
          .action = "ask for a shorter --context"});
  }
  context.resize(static_cast<size_t>(options.context));
  Assembled prompt;
  prompt.layout.text = tokenizer.decode(context) + options.question;
  prompt.tokens = tokenizer.encode(prompt.layout.text);
  prompt.layout.ranges = token_ranges(tokenizer, prompt.tokens, prompt.layout.text);
  const auto begin = static_cast<int64_t>(prompt.layout.text.size() - options.question.size());
  const auto it = std::ranges::find_if(prompt.layout.ranges, [&](const TextRange& r) { return r.end > begin; });
  prompt.layout.question = it - prompt.layout.ranges.begin();
  return prompt;
}

/// One method and its timed runs.
struct Candidate {
  json spec;
  std::unique_ptr<Method> method;
  std::shared_ptr<ReuseMemory> memory = std::make_shared<ReuseMemory>();
  std::vector<double> first_token_ms;
  std::vector<double> load_ms;
  std::vector<double> score_ms;
  std::vector<double> align_ms;
  std::vector<double> prefill_ms;
  json result;
};

std::vector<Candidate> candidates(const Options& options) {
  std::vector<Candidate> list;
  for (const std::string& text : options.methods) {
    Candidate one{.spec = parse_method_spec(text, "--method")};
    one.method = make_method(one.spec, "--method");
    if (one.method->reuser() == nullptr) {
      fail({.place = "--method",
            .found = fmt::format("\"{}\", which starts from the full cache", text),
            .expected = "a method that reuses entries",
            .action = "`kvarena methods --family reuse` lists all"});
    }
    list.push_back(std::move(one));
  }
  return list;
}

/// The stretches of text that these tokens, ascending, spell.
std::vector<std::string> stretches(const std::vector<int32_t>& tokens, const PromptLayout& layout) {
  std::vector<TextRange> ranges;
  for (const int32_t token : tokens) {
    const TextRange& own = layout.ranges[static_cast<size_t>(token)];
    if (!ranges.empty() && own.begin <= ranges.back().end) {
      ranges.back().end = std::max(ranges.back().end, own.end);
    } else {
      ranges.push_back(own);
    }
  }
  std::vector<std::string> texts;
  for (const TextRange& range : ranges) {
    texts.push_back(layout.text.substr(static_cast<size_t>(range.begin), static_cast<size_t>(range.end - range.begin)));
  }
  return texts;
}

void run_once(Candidate& one, Transformer& model, const Assembled& prompt, const Prefill& full) {
  constexpr double milliseconds = 1e3;
  const ReusedPrompt reused = reuse_prompt(model, prompt.tokens, prompt.layout, *one.method->reuser(), *one.memory);
  const ReuseRecord& record = reused.record;
  one.first_token_ms.push_back(record.total_s * milliseconds);
  one.load_ms.push_back(record.load_s * milliseconds);
  one.score_ms.push_back(record.score_s * milliseconds);
  one.align_ms.push_back(record.align_s * milliseconds);
  one.prefill_ms.push_back(record.prefill_s * milliseconds);
  if (!one.result.is_null()) return;
  const std::vector<double> deviation = layer_deviations(full.cache, reused.cache, full.cache.length);
  const metrics::StepDivergence step = metrics::step_divergence(std::span<const float>(full.logits), reused.logits, 0);
  const double layers = static_cast<double>(deviation.size());
  one.result = {{"method", one.spec},
                {metrics::kRecomputeShare.name, record.recompute_share},
                {metrics::kRecomputedTokens.name, record.recomputed.size()},
                {"recomputed_text", stretches(record.recomputed, prompt.layout)},
                {"loaded_bytes", record.loaded_bytes},
                {metrics::kKvDeviation.name,
                 deviation.empty() ? json() : json(std::accumulate(deviation.begin(), deviation.end(), 0.0) / layers)},
                {"kv_deviation_by_layer", deviation},
                {metrics::kKlNats.name, step.kl_nats}};
}

/// Text that follows the prompt, decoded greedily.
std::string answer_to(Transformer& model, const OpenedModel& opened, const Prefill& prompt, const Method& method,
                      int64_t most) {
  const auto session =
      start_session(model, prompt, method, {.stop = {.max_new_tokens = most, .stop_tokens = stop_tokens(opened)}});
  Session* const alone[] = {session.get()};
  run_together(model, alone);
  if (session->finish == FinishReason::failed) throw UserError(session->failure);
  return opened.tokenizer->decode(session->tokens);
}

json timed(const Candidate& one, double full_ms) {
  json result = one.result;
  const double first = metrics::percentile(one.first_token_ms, 50);
  result[metrics::kTimeToFirstTokenMs.name] = first;
  result["of_full"] = first / full_ms;
  result[metrics::kLoadMs.name] = metrics::percentile(one.load_ms, 50);
  result[metrics::kScoreMs.name] = metrics::percentile(one.score_ms, 50);
  result[metrics::kAlignMs.name] = metrics::percentile(one.align_ms, 50);
  result[metrics::kPrefillMs.name] = metrics::percentile(one.prefill_ms, 50);
  return result;
}

/// Overlap of important tokens: between the model's first layer and its others, and between the models' last thirds.
json overlaps(const Options& options, Transformer& model, const Assembled& prompt) {
  const Speculation own = speculate(model, prompt.tokens, prompt.layout, {});
  json result{{"top", options.top}, {"first_layer_with_each", evaluate::first_layer_overlaps(own, options.top)}};
  if (!options.speculative) return result;
  const Speculation read = speculate(model, prompt.tokens, prompt.layout, {.path = *options.speculative});
  result["speculative"] = *options.speculative;
  result["speculative_with_target"] = evaluate::overlap_with_target(read, own, options.top);
  return result;
}

void print_answers(const json& report) {
  print(fmt::format("\nfull KV answers {}\n", json_text(report["answer"])));
  for (const json& row : report["methods"])
    print(fmt::format("{} answers {}\n", row["method"].dump(), json_text(row["answer"])));
}

/// Each method's stretches of text, a line of JSON each.
void print_spans(const json& report) {
  for (const json& row : report["methods"]) {
    print(fmt::format("\n{} computes anew:\n", row["method"].dump()));
    for (const json& stretch : row["recomputed_text"]) print(fmt::format("  {}\n", json_text(stretch)));
  }
}

void print_text(const json& report) {
  print(fmt::format("{} tokens, {} of them the question; a full prefill takes {:.0f} ms (medians of {})\n\n",
                    report["tokens"].get<int64_t>(), report["question_tokens"].get<int64_t>(),
                    report["full_prefill_ms"].get<double>(), report["repeats"].get<int64_t>()));
  Rows rows = {{"method", "first token ms", "of full", "load", "score", "align", "prefill", "computed anew",
                "KV deviation", "KL nats"}};
  for (const json& row : report["methods"]) {
    const auto cell = [&row](const char* key, int places, double scale = 1) {
      return row[key].is_null() ? std::string("-") : fmt::format("{:.{}f}", scale * row[key].get<double>(), places);
    };
    rows.push_back({row["method"]["name"], cell(metrics::kTimeToFirstTokenMs.name, 0), cell("of_full", 2),
                    cell(metrics::kLoadMs.name, 0), cell(metrics::kScoreMs.name, 0), cell(metrics::kAlignMs.name, 0),
                    cell(metrics::kPrefillMs.name, 0), cell(metrics::kRecomputeShare.name, 0, 100) + "%",
                    cell(metrics::kKvDeviation.name, 3), cell(metrics::kKlNats.name, 4)});
  }
  if (rows.size() > 1) print(Page().columns(rows).text("\n"));
  const json& overlap = report["overlap"];
  const auto by_layer = overlap["first_layer_with_each"].get<std::vector<double>>();
  print(
      fmt::format("Tokens called important (a share of {}): the first layer's and another layer's agree by {:.2f} on "
                  "average (Jaccard)",
                  overlap["top"].get<double>(),
                  std::accumulate(by_layer.begin(), by_layer.end(), 0.0) / static_cast<double>(by_layer.size())));
  if (overlap.contains("speculative")) {
    print(fmt::format(", {}'s and the model's by {:.2f}", overlap["speculative"].get<std::string>(),
                      overlap["speculative_with_target"].get<double>()));
  }
  print(".\n");
}

/// A method for the help text.
std::string example_reuser() {
  for (const MethodEntry& entry : method_registry()) {
    if (entry.family == Family::reuse) return entry.info.name;
  }
  return "NAME";
}

int run(const Options& options) {
  options.check();
  std::vector<Candidate> methods = candidates(options);
  const OpenedModel opened = open_chosen(options.model);
  const Assembled prompt = assemble(options, *opened.tokenizer);
  Transformer model = load_weights(opened, options.model);
  Prefill full = prefill(model, prompt.tokens, {});
  full.layout = prompt.layout;
  const auto facts = facts_of(opened, model, options.model);
  for (Candidate& one : methods) {
    one.memory->facts = facts;
    prime(model, prompt.tokens, prompt.layout, *one.method->reuser(), *one.memory);
  }

  std::vector<double> full_ms;
  for (int64_t i = 0; i < options.repeats; ++i) {  // methods take turns, so that a busy machine is busy for all
    full_ms.push_back(1e3 * prefill(model, prompt.tokens, {}).seconds);
    for (Candidate& one : methods) run_once(one, model, prompt, full);
  }
  const double median = metrics::percentile(full_ms, 50);
  json results = json::array();
  for (const Candidate& one : methods) results.push_back(timed(one, median));
  json report{{"model", opened.config.name},
              {"tokens", prompt.tokens.size()},
              {"question_tokens", static_cast<int64_t>(prompt.tokens.size()) - *prompt.layout.question},
              {"repeats", options.repeats},
              {"full_prefill_ms", median},
              {"methods", results},
              {"overlap", overlaps(options, model, prompt)}};
  if (options.answer > 0) {
    report["answer"] = answer_to(model, opened, full, Method(), options.answer);
    for (size_t i = 0; i < methods.size(); ++i) {
      full.memory = methods[i].memory;
      report["methods"][i]["answer"] = answer_to(model, opened, full, *methods[i].method, options.answer);
    }
  }
  if (options.as_json) {
    print(json_text(report, 2) + "\n");
  } else {
    print_text(report);
    if (options.answer > 0) print_answers(report);
    if (options.spans) print_spans(report);
  }
  return 0;
}

}  // namespace

Command reuse_command() {
  const std::string method = example_reuser();
  return make_command<Options>(
      {.name = "reuse",
       .summary = "what reusing entries of chunks saves and costs on one prompt",
       .description =
           "Takes the beginning of a text as chunks that were seen before and a question behind them. Says for "
           "each method the time to first token and its parts beside that of a full prefill of the same run, what was "
           "computed anew, and how far keys and values are from full KV; and how much the tokens agree that layers, or "
           "a speculative model, call important.",
       .examples = {{fmt::format("kvarena reuse --prompt-file book.txt --method {}", method), "on 4096 tokens"},
                    {"kvarena reuse --prompt-file book.txt --speculative smollm2-135m",
                     "whose tokens a speculative model would choose"}}},
      run);
}

}  // namespace kvarena::cli
