#include "harness/cli/estimate_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "datasets/texts/essays.h"
#include "harness/cli/registry_text.h"
#include "harness/core/error.h"
#include "harness/method/registry.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

constexpr int64_t kLongest = 1536;  // tokens of the longer prompt

std::unique_ptr<Method> method_with_a_cache(const json& asked) {
  auto method = make_method(asked, "--method");
  const char* found = method->verifier() != nullptr    ? "a verifier, which holds two caches and decodes in rounds"
                      : method->reuser() != nullptr    ? "a method that reuses entries of earlier prompts"
                      : method->placement() != nullptr ? "a policy that places many contexts"
                                                       : nullptr;
  if (found == nullptr) return method;
  fail({.place = "--method",
        .found = found,
        .expected = "a method that compresses or selects",
        .action = "of a verifier give the drafter, and --acceptance"});
}

std::vector<int32_t> prose(const Tokenizer& tokenizer, int64_t tokens) {
  for (size_t bytes = 8 * static_cast<size_t>(tokens);; bytes *= 2) {
    std::vector<int32_t> ids = tokenizer.encode(datasets::write_essays(1, bytes));
    if (std::ssize(ids) < tokens) continue;
    ids.resize(static_cast<size_t>(tokens));
    return ids;
  }
}

}  // namespace

std::vector<MeasuredMethod> measure_methods(const std::vector<json>& methods, const ModelOptions& options) {
  std::vector<std::unique_ptr<Method>> made;
  for (const json& asked : methods) made.push_back(method_with_a_cache(asked));
  if (made.empty()) return {};
  const OpenedModel opened = open_chosen(options);
  const int64_t longest = std::min(kLongest, opened.config.max_position - kCostSteps);
  const std::vector<int32_t> tokens = prose(*opened.tokenizer, longest + kCostSteps);
  Transformer model = load_weights(opened, options);
  const auto facts = facts_of(opened, model, options);
  std::vector<MeasuredMethod> measured;
  for (size_t i = 0; i < made.size(); ++i) {
    measured.push_back(
        {.label = short_form(methods[i]), .costs = measure_costs(model, *made[i], tokens, facts, "--method")});
  }
  return measured;
}

}  // namespace kvarena::cli
