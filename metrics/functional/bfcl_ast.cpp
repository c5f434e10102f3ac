#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "metrics/algorithms/bfcl_checker.h"
#include "metrics/algorithms/python_calls.h"
#include "metrics/jsonl.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

constexpr const char* kDecoderFailed = "ast_decoder:decoder_failed";

/// Whether all that counts is whether there is a call.
bool asks_for_any_call(const std::string& category) { return category.find("relevance") != std::string::npos; }

std::optional<std::string> error_of(std::string_view output, const json& functions, const json& ground_truth,
                                    const std::string& category) {
  const auto calls = parse_python_calls(output);
  if (asks_for_any_call(category)) {
    const bool called = calls && !calls->empty();
    const bool irrelevance = category.find("irrelevance") != std::string::npos;
    if (called != irrelevance) return std::nullopt;
    return called ? "irrelevance_error:decoder_success" : "relevance_error:decoder_failed";
  }
  if (!calls) return kDecoderFailed;
  return check_bfcl_calls(functions, *calls, ground_truth, category);
}

const json& member(const json& extras, const char* name) {
  const auto found = extras.find(name);
  if (found != extras.end()) return *found;
  fail({.place = fmt::format("metric \"bfcl_ast\": extras.{}", name),
        .found = "nothing",
        .expected = "category, function and ground_truth of a BFCL entry"});
}

MetricScore score_bfcl(const MetricInput& input) {
  const std::string category = member(input.extras, "category").get<std::string>();
  const bool answered = !asks_for_any_call(category);
  const json none = json::array();
  const auto error = error_of(input.prediction, answered ? member(input.extras, "function") : none,
                              answered ? member(input.extras, "ground_truth") : none, category);
  MetricScore score;
  score.score = error ? 0.0 : 1.0;
  if (error) score.notes["error"] = *error;
  return score;
}

json entry_with_id(const std::filesystem::path& file, const std::string& id) {
  json entry;
  for_each_line(file, [&](std::string_view line, int64_t) {
    if (!entry.is_null() || line.find(id) == std::string_view::npos) return;
    json candidate = json::parse(line);
    if (candidate.value("id", "") == id) entry = std::move(candidate);
  });
  if (!entry.is_null()) return entry;
  fail({.place = file.string(), .found = "no row of that id", .expected = fmt::format("a row with id \"{}\"", id)});
}

// Rows either carry the entry or name it; then it is read from the data folder's bfcl/.
json recompute(const json& row, const VectorContext& context) {
  const auto category = row.at("category").get<std::string>();
  json functions = row.value("function", json());
  json ground_truth = row.value("ground_truth", json());
  if (functions.is_null()) {
    const auto id = row.at("entry_id").get<std::string>();
    const std::string name = fmt::format("BFCL_v4_{}.jsonl", category);
    functions = entry_with_id(context.data_folder / "bfcl" / name, id).at("function");
    ground_truth = entry_with_id(context.data_folder / "bfcl/possible_answer" / name, id).at("ground_truth");
  }
  const auto error = error_of(row.at("model_output").get_ref<const std::string&>(), functions, ground_truth, category);
  return {{"expected", {{"valid", !error}, {"error_type", error ? json(*error) : json()}}}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "bfcl_ast",
     .title = "BFCL call correctness (AST)",
     .kind = MetricKind::functional,
     .summary =
         "1 when the Python calls in the answer pass BFCL's checker for the entry's category (simple, "
         "multiple, parallel, parallel_multiple, irrelevance, relevance). Needs category, function, ground_truth.",
     .source = "ShishirPatil/gorilla @6ea57973 bfcl_eval/eval_checker/ast_eval",
     .score = score_bfcl,
     .vectors = {{"bfcl_ast", recompute}}});

}  // namespace kvarena::metrics
