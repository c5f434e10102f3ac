#include "harness/method/python/budget_rule.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/core/error.h"

namespace kvarena {
namespace {

using nlohmann::json;

bool holds_entries(const LayerScores& layer) {
  return std::ranges::any_of(layer.heads, [](const auto& row) { return !row.empty(); });
}

/// The layers whose scores are given: one, or all of them.
struct Given {
  explicit Given(const Division& division) {
    const auto begin = std::ranges::find_if(division.layers, holds_entries);
    first = begin - division.layers.begin();
    layers = {begin, std::find_if_not(begin, division.layers.end(), holds_entries)};
    heads = std::ssize(layers.front().heads);
  }

  int64_t first = 0;
  int64_t heads = 0;
  std::span<const LayerScores> layers;
};

/// [layers, kv_heads, n], minus infinity behind a head's last entry.
at::Tensor scores_of(const Given& given, int64_t n) {
  at::Tensor scores = at::full({std::ssize(given.layers), given.heads, n}, -std::numeric_limits<float>::infinity());
  auto* to = scores.data_ptr<float>();
  for (const LayerScores& layer : given.layers) {
    KVARENA_ASSERT(std::ssize(layer.heads) == given.heads, "layers with other numbers of heads");
    for (const std::vector<float>& row : layer.heads) {
      std::ranges::copy(row, to);
      to += n;
    }
  }
  return scores;
}

/// [layers, kv_heads], entries that each head holds.
at::Tensor entries_of(const Given& given) {
  std::vector<int64_t> counts;
  for (const LayerScores& layer : given.layers) {
    for (const std::vector<float>& row : layer.heads) counts.push_back(std::ssize(row));
  }
  return at::tensor(counts, at::kLong).view({std::ssize(given.layers), given.heads});
}

json facts_of(const Division& division, const Given& given) {
  const Protection& protection = given.layers.front().protection;
  return {{"share", division.share},       {"capacity", division.capacity()}, {"first_layer", given.first},
          {"layers", given.layers.size()}, {"depth", division.layers.size()}, {"kv_heads", given.heads},
          {"n", division.longest()},       {"sinks", protection.sinks},       {"recent", protection.recent}};
}

}  // namespace

bool PythonBudgetRule::by_layer() const { return !part_.made().at("whole_cache").get<bool>(); }

std::vector<HeadBudgets> PythonBudgetRule::divide(const Division& division) const {
  std::vector<HeadBudgets> budgets = division.equal();
  if (division.fits()) return budgets;
  const Given given(division);
  json request = part_.request("divide");
  request.update(facts_of(division, given));
  const at::Tensor told = part_.child()->ask_tensor(request, [&](const json& wish) {
    return wish.at("want") == "scores" ? scores_of(given, division.longest()) : entries_of(given);
  });
  const auto* budget = told.const_data_ptr<float>();  // [1, layers, kv_heads]
  for (int64_t layer = given.first; layer < given.first + std::ssize(given.layers); ++layer) {
    for (int64_t& own : budgets[layer]) {
      if (!(*budget >= 1) || *budget != std::floor(*budget) || std::isinf(*budget)) {
        fail({.place = fmt::format("budget rule {}: layer {}, kv head {}", request["divide"].get<std::string>(), layer,
                                   &own - budgets[layer].data()),
              .found = fmt::format("a budget of {}", *budget),
              .expected = "a whole number of entries, at least 1"});
      }
      own = static_cast<int64_t>(*budget++);
    }
  }
  return budgets;
}

}  // namespace kvarena
