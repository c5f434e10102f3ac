#include "harness/storage/placement/exact.h"

#include <algorithm>

#include "harness/core/linear_program.h"

namespace kvarena::storage {
namespace {

struct Option {
  size_t context = 0;
  Choice choice;
  double gain = 0;  // over the context's least useful option
};

/// Every choice that fits its tier alone.
std::vector<Option> all_options(std::span<const Context> contexts, std::span<const StorageTier> tiers, double alpha) {
  std::vector<Option> options;
  for (size_t c = 0; c < contexts.size(); ++c) {
    const size_t begin = options.size();
    double least = 0;
    for (size_t t = 0; t < tiers.size(); ++t) {
      for (size_t f = 0; f < contexts[c].forms.size(); ++f) {
        const Choice choice{.form = static_cast<int64_t>(f), .tier = static_cast<int64_t>(t)};
        if (bytes_of(contexts[c], choice, tiers) > tiers[t].capacity) continue;
        const double value = utility(contexts[c], choice, tiers, alpha);
        least = options.size() == begin ? value : std::min(least, value);
        options.push_back({.context = c, .choice = choice, .gain = value});
      }
    }
    for (size_t i = begin; i < options.size(); ++i) options[i].gain -= least;
  }
  return options;
}

/// The best form on the last tier, which always has room: what a context takes when no option gains anything.
Choice fallback(const Context& context, std::span<const StorageTier> tiers, double alpha) {
  Choice best{.form = 0, .tier = static_cast<int64_t>(tiers.size()) - 1};
  for (Choice choice = best; choice.form < static_cast<int64_t>(context.forms.size()); ++choice.form) {
    if (utility(context, choice, tiers, alpha) > utility(context, best, tiers, alpha)) best = choice;
  }
  return best;
}

}  // namespace

std::vector<Choice> best_placement(std::span<const Context> contexts, std::span<const StorageTier> tiers,
                                   double alpha) {
  check_tiers(tiers);
  const std::vector<Option> options = all_options(contexts, tiers, alpha);
  LinearProgram program{.whole = true};
  for (const Option& option : options) program.gain.push_back(option.gain);
  // At most one option of a context: gains are at least 0, so that leaving a context out gains nothing.
  for (size_t c = 0; c < contexts.size(); ++c) {
    std::vector<double>& row = program.rows.emplace_back();
    for (const Option& option : options) row.push_back(option.context == c ? 1 : 0);
    program.limits.push_back(1);
  }
  for (size_t t = 0; t + 1 < tiers.size(); ++t) {
    const auto capacity = static_cast<double>(tiers[t].capacity);
    std::vector<double>& row = program.rows.emplace_back();
    for (const Option& option : options) {
      const bool here = option.choice.tier == static_cast<int64_t>(t) && capacity > 0;
      const auto bytes = static_cast<double>(bytes_of(contexts[option.context], option.choice, tiers));
      row.push_back(here ? bytes / capacity : 0);
    }
    program.limits.push_back(1);
  }
  const std::vector<double> x = solve(program);

  std::vector<Choice> choices;
  for (const Context& context : contexts) choices.push_back(fallback(context, tiers, alpha));
  for (size_t i = 0; i < options.size(); ++i) {
    if (x[i] > 0.5) choices[options[i].context] = options[i].choice;
  }
  return choices;
}

double total_utility(std::span<const Context> contexts, std::span<const StorageTier> tiers, double alpha) {
  double total = 0;
  for (const Context& context : contexts) total += utility(context, context.at, tiers, alpha);
  return total;
}

}  // namespace kvarena::storage
