#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "harness/core/error.h"
#include "metrics/algorithms/regex.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

using Nodes = std::set<std::string, std::less<>>;

/// The list in the answer's last line, which says that it is final; nothing where there is none.
std::optional<Nodes> answered_nodes(std::string_view text) {
  static const Regex kList(R"(\[.*\])");
  const std::string_view line = text.substr(text.rfind('\n') + 1);
  if (line.find("Final Answer:") == std::string_view::npos) return std::nullopt;
  const RegexMatch list = kList.search(line);
  if (list.empty()) return std::nullopt;
  std::string_view inside = list[0];
  inside.remove_prefix(std::min(inside.find_first_not_of("[]"), inside.size()));
  inside = inside.substr(0, inside.find_last_not_of("[]") + 1);
  Nodes nodes;
  for (const std::string& item : split_on(inside, ",")) {
    if (std::string node(strip(item)); !node.empty()) nodes.insert(std::move(node));
  }
  return nodes;
}

Nodes gold_nodes(const MetricInput& input) {
  const auto gold = input.references.size() == 1
                        ? nlohmann::json::parse(input.references[0], nullptr, /*allow_exceptions=*/false)
                        : nlohmann::json();
  if (!gold.is_array()) {
    fail({.place = "metric \"node_set_f1\": references",
          .found = input.references.empty() ? "nothing" : fmt::format("\"{}\"", input.references[0]),
          .expected = "one reference, the JSON text of a list of names"});
  }
  return gold.get<Nodes>();
}

MetricScore node_set_f1(const MetricInput& input) {
  const Nodes gold = gold_nodes(input);
  const std::optional<Nodes> answered = answered_nodes(input.prediction);
  if (!answered) return {0, {{"answered", 0}}, {}};
  if (gold.empty() && answered->empty()) return {1, {{"answered", 1}}, {}};
  double overlap = 0;
  for (const std::string& node : *answered) overlap += gold.contains(node) ? 1 : 0;
  return {2 * overlap / static_cast<double>(gold.size() + answered->size()), {{"answered", 1}}, {}};
}

}  // namespace

KVARENA_METRIC({.id = "node_set_f1",
                .title = "F1 of a set of nodes",
                .summary = "F1 of the names in the list of the last line, \"Final Answer: [a, b]\", against the gold "
                           "ones; 0 without such a line, 1 where both are empty.",
                .source = "openai/graphwalks README.md, Extraction and Grading",
                .score = node_set_f1});

}  // namespace kvarena::metrics
