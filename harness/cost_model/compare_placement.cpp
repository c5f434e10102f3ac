#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "harness/core/parameters.h"
#include "harness/cost_model/comparison_parts.h"
#include "harness/cost_model/description.h"
#include "harness/storage/placement/exact.h"
#include "harness/storage/placement/problem.h"

namespace kvarena::cost_model {
namespace {

using storage::Choice;
using storage::Context;
using storage::Form;
using storage::StorageTier;

struct ContextPart {
  double gb = 0;
  std::vector<double> kept;
  std::vector<double> quality;

  void parameters(ParameterVisitor& p) {
    p("gb", gb).above(0).required();
    p("kept", kept).required().above(0).max(1).doc("shares that it may be compressed to");
    p("quality", quality).required().doc("of answers, for each of them");
  }
};

struct TierPart {
  std::optional<double> gb;
  double gb_per_s = 0;

  void parameters(ParameterVisitor& p) {
    p("gb", gb).above(0).doc("absent: without limit");
    p("gb_per_s", gb_per_s).above(0).required();
  }
};

struct Row {
  std::string label;
  std::string rule;

  void parameters(ParameterVisitor& p) {
    p("label", label).required();
    p("rule", rule).required().one_of({"compress", "evict", "both"});
  }
};

struct Outcome {
  double quality = 0;  // mean over the contexts
  double seconds = 0;  // sum over the contexts, each loaded once
};

std::vector<Context> read_contexts(const nlohmann::json& list, const std::string& place) {
  std::vector<Context> contexts;
  std::vector<std::string> problems;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", place, i);
    ContextPart part;
    read_part(list[i], where, part, problems);
    if (problems.empty() && (part.kept.size() != part.quality.size() || part.kept.empty() || part.kept[0] != 1)) {
      problems.push_back(describe(
          ErrorParts{.place = where,
                     .found = fmt::format("{} shares kept and {} qualities", part.kept.size(), part.quality.size()),
                     .expected = "as many of both, the first share 1"}));
    }
    Context context{.id = static_cast<int64_t>(i)};
    for (size_t form = 0; form < std::min(part.kept.size(), part.quality.size()); ++form) {
      context.forms.push_back({.keep = part.kept[form],
                               .bytes = std::llround(1e9 * part.gb * part.kept[form]),
                               .quality = part.quality[form]});
    }
    contexts.push_back(std::move(context));
  }
  throw_problems(problems);
  return contexts;
}

std::vector<StorageTier> read_tiers(const nlohmann::json& list, const std::string& place) {
  std::vector<StorageTier> tiers;
  std::vector<std::string> problems;
  for (size_t i = 0; i < list.size(); ++i) {
    TierPart part;
    read_part(list[i], fmt::format("{}[{}]", place, i), part, problems);
    StorageTier tier{.bandwidth = 1e9 * part.gb_per_s};
    if (part.gb) tier.capacity = std::llround(1e9 * *part.gb);
    tiers.push_back(tier);
  }
  throw_problems(problems);
  storage::check_tiers(tiers);
  return tiers;
}

Outcome outcome(const std::vector<Context>& contexts, const std::vector<StorageTier>& tiers,
                const std::vector<Choice>& choices) {
  Outcome found;
  for (size_t i = 0; i < contexts.size(); ++i) {
    const Form& form = contexts[i].form(choices[i]);
    found.quality += form.quality / static_cast<double>(contexts.size());
    found.seconds += storage::first_token_seconds(form, tiers[static_cast<size_t>(choices[i].tier)]);
  }
  return found;
}

/// All on the first tier, all at the largest share that lets them fit.
Outcome compressed_alike(const std::vector<Context>& contexts, const std::vector<StorageTier>& tiers,
                         const std::string& place) {
  for (const Form& wanted : contexts.front().forms) {
    std::vector<Choice> choices(contexts.size());
    int64_t bytes = 0;
    bool all_have_it = true;
    for (size_t i = 0; i < contexts.size() && all_have_it; ++i) {
      const auto same = std::ranges::find(contexts[i].forms, wanted.keep, &Form::keep);
      all_have_it = same != contexts[i].forms.end();
      if (!all_have_it) break;
      choices[i].form = same - contexts[i].forms.begin();
      bytes += same->bytes;
    }
    if (all_have_it && bytes <= tiers.front().capacity) return outcome(contexts, tiers, choices);
  }
  fail({.place = place,
        .found = "no share that all contexts have a form for fits on the first tier",
        .expected = "a larger tier"});
}

Outcome best(std::vector<Context> contexts, const std::vector<StorageTier>& tiers, bool compress) {
  constexpr double quality_first = 1e6;  // no loading time outweighs any quality
  if (!compress) {
    for (Context& context : contexts) context.forms.resize(1);
  }
  return outcome(contexts, tiers, storage::best_placement(contexts, tiers, quality_first));
}

}  // namespace

std::vector<ComparedFigure> compare_placement(ComparisonReader& reader) {
  const auto list = [&](const char* key) {
    const nlohmann::json found = reader.whole().value(key, nlohmann::json());
    const std::string place = fmt::format("{}.{}", reader.place(), key);
    if (!found.is_array() || found.empty()) fail({.place = place, .found = brief(found), .expected = "a list"});
    return found;
  };
  const std::vector<Context> contexts = read_contexts(list("contexts"), reader.place() + ".contexts");
  const std::vector<StorageTier> tiers = read_tiers(list("tiers"), reader.place() + ".tiers");
  return reader.each_row([&](const nlohmann::json& json, const std::string& place) {
    Row row;
    throw_problems(
        read_parameters(json, place, [&](ParameterVisitor& p) { row.parameters(p); }, {"published", "unknown"}));
    const Outcome reached =
        row.rule == "compress" ? compressed_alike(contexts, tiers, place) : best(contexts, tiers, row.rule == "both");
    return reader.compare(json, place, {{"quality, %", 100 * reached.quality}, {"seconds", reached.seconds}});
  });
}

}  // namespace kvarena::cost_model
