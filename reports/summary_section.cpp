// Summary of a report: the answer in sentences, each from the data, and the picture of quality against bytes.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "reports/byte_classes.h"
#include "reports/comparisons.h"
#include "reports/emulated.h"
#include "reports/pooled.h"
#include "reports/report_charts.h"
#include "reports/sections.h"
#include "reports/timing.h"

namespace kvarena::reports {
namespace {

constexpr double kWhole = 0.95;  // shares from here on save nothing
constexpr size_t kNamed = 6;     // methods of a sentence that are named; of a few more all are
constexpr size_t kFewMore = 2;

/// "a quarter", "29%".
std::string share_words(double share) {
  constexpr std::array<std::pair<double, const char*>, 6> kWords = {{{0.125, "an eighth"},
                                                                     {0.25, "a quarter"},
                                                                     {1.0 / 3, "a third"},
                                                                     {0.5, "half"},
                                                                     {2.0 / 3, "two thirds"},
                                                                     {0.75, "three quarters"}}};
  for (const auto& [value, words] : kWords) {
    if (std::abs(share - value) <= 0.06 * value) return words;
  }
  return fmt::format("{:.0f}%", 100 * share);
}

/// The label, in quotes where a comma of its own would divide it in a list.
std::string said(const std::string& label) {
  return label.find(',') == std::string::npos ? label : fmt::format("“{}”", label);
}

bool too_many(size_t methods) { return methods > kNamed + kFewMore; }

std::string listed(const std::vector<std::string>& names) {
  if (names.size() == 1) return names.front();
  if (too_many(names.size())) {
    return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kNamed, ", "), names.size() - kNamed);
  }
  return fmt::format("{} and {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

/// Clauses about methods, the best first; of too many the first ones and the last.
std::string first_and_last(std::vector<std::string> clauses) {
  if (too_many(clauses.size())) {
    clauses.back() = fmt::format("after {} more, {}", clauses.size() - kNamed - 1, clauses.back());
    clauses.erase(clauses.begin() + kNamed, clauses.end() - 1);
  }
  return fmt::format("{}", fmt::join(clauses, "; "));
}

/// Evidence of what a method's scores lost or gained over all workloads; null where they are not read alike, or not
/// paired.
const Evidence* evidence_of(const ExperimentData& data, const Comparisons& comparisons, const std::string& method) {
  const std::vector<std::string> workloads = data.workloads();
  if (workloads.size() > 1) return have_one_look(data) ? comparisons.pooled(method, workloads.front()) : nullptr;
  const CellComparison* only = comparisons.of(data.find(method, workloads.front(), results::CellKind::quality));
  return only != nullptr && only->evidence ? &*only->evidence : nullptr;
}

std::string amount(double value, const MetricLook& look) {
  const std::string number = format_number(std::abs(value), look.format);
  return look.unit == "%" ? number + " points" : look.unit.empty() ? number : number + " " + look.unit;
}

/// "costs 35.0 points (12.5 to 57.5)".
std::string effect(const Evidence& evidence, const MetricLook& look) {
  const Difference difference = verdict_of(evidence, look);
  const bool lower = look.better == Better::lower;
  const double low = std::min(std::abs(difference.interval.low), std::abs(difference.interval.high));
  const double high = std::max(std::abs(difference.interval.low), std::abs(difference.interval.high));
  const std::string size = fmt::format("{} ({} to {})", amount(difference.value, look), format_number(low, look.format),
                                       format_number(high, look.format));
  switch (difference.verdict) {
    case Verdict::worse: return "costs " + size;
    case Verdict::better: return lower ? "lowers it by " + size : "gains " + size;
    case Verdict::differs: return "differs by " + size;
    case Verdict::no_difference:
      if (evidence.tokens && evidence.tokens->equal()) return "gives the very same tokens";
      return fmt::format("shows no difference ({}{})", format_signed(difference.value, look.format),
                         difference.detectable
                             ? fmt::format("; {} would mostly have shown", amount(*difference.detectable, look))
                             : std::string());
    case Verdict::too_few: break;
  }
  const bool tokens = evidence.tokens && evidence.tokens->differ();
  return fmt::format("has too few samples to tell ({}{})", format_signed(difference.value, look.format),
                     tokens ? "; its tokens do differ" : "");
}

/// A method of a class of bytes.
struct Member {
  std::string method;
  double share = 0;
  const Evidence* evidence = nullptr;
  double loss = 0;  // positive is bad
};

class Summary {
 public:
  Summary(const ModelCells& model, bool unlike)
      : data_(model.data),
        unlike_(unlike),
        comparisons_(model.comparisons),
        look_(look_of(data_, primary_metric(data_, data_.workloads().front()))) {}

  std::vector<std::string> sentences() {
    std::vector<std::string> said;
    for (const auto& [number, members] : classes()) {
      std::string text = members.front().share < kWhole ? of_budget(members) : of_whole(members);
      if (!text.empty()) said.push_back(std::move(text));
    }
    for (const std::string& text : {times(), power(), outcomes(), unjudged()}) {
      if (!text.empty()) said.push_back(text);
    }
    return said;
  }

 private:
  /// Methods by class of bytes, the fewest bytes first, in each the least loss first.
  [[nodiscard]] std::map<int, std::vector<Member>> classes() const {
    const std::map<std::string, double> shares = byte_shares(data_);
    std::map<int, std::vector<Member>> all;
    for (const auto& [method, number] : byte_classes(data_)) {
      Member member{.method = method, .share = shares.at(method), .evidence = evidence_of(data_, comparisons_, method)};
      if (member.evidence != nullptr)
        member.loss = (look_.better == Better::lower ? 1 : -1) * member.evidence->test.difference;
      all[number].push_back(std::move(member));
    }
    for (auto& [number, members] : all) std::ranges::stable_sort(members, {}, &Member::loss);
    return all;
  }

  [[nodiscard]] std::string of_budget(const std::vector<Member>& members) const {
    std::vector<std::string> effects;
    double share = 0;
    for (const Member& member : members) {
      share += member.share / static_cast<double>(members.size());
      if (member.evidence != nullptr)
        effects.push_back(fmt::format("{} {}", said(member.method), effect(*member.evidence, look_)));
    }
    if (effects.empty()) return "";
    return fmt::format("At {} of full KV's bytes, {}.{}", share_words(share), first_and_last(effects), apart(members));
  }

  /// Which of a class can be told from its best, each tested against it.
  [[nodiscard]] std::string apart(const std::vector<Member>& members) const {
    std::vector<std::string> alike, behind;
    if (members.size() < 2 || members.front().evidence == nullptr) return "";
    const std::string& best = members.front().method;
    std::vector<std::string> names;
    for (const Member& member : members) names.push_back(member.method);
    const ModelCells beside(data_.of_methods(names).with_baseline(best), unlike_);
    for (const Member& member : members) {
      if (member.method == best) continue;
      const Evidence* evidence = evidence_of(beside.data, beside.comparisons, member.method);
      if (evidence == nullptr) continue;
      const Verdict verdict = verdict_of(*evidence, look_).verdict;
      (verdict == Verdict::worse ? behind : alike).push_back(said(member.method));
    }
    std::string text;
    if (!behind.empty()) text += fmt::format(" {} is ahead of {}.", said(best), listed(behind));
    if (!alike.empty()) {
      alike.insert(alike.begin(), said(best));
      text += fmt::format(" {} cannot be told apart.", listed(alike));
    }
    return text;
  }

  /// Methods that save no bytes, and what they save instead; of equal losses the best drafter first.
  [[nodiscard]] std::string of_whole(std::vector<Member> members) const {
    std::ranges::stable_sort(members, {}, [&](const Member& member) {
      return std::pair(member.loss, -mean(member.method, metrics::kAcceptanceRate).value_or(0));
    });
    std::vector<std::string> list;
    for (const Member& member : members) {
      std::string text = fmt::format("{} holds {:.0f}% of full KV's bytes", said(member.method), 100 * member.share);
      if (const auto attended = mean(member.method, metrics::kAttendedShare))
        text += fmt::format(", attends to {:.0f}% of the entries a step", 100 * *attended);
      if (const auto accepted = mean(member.method, metrics::kAcceptanceRate))
        text += fmt::format(", accepts {:.0f}% of drafted tokens", 100 * *accepted);
      if (member.evidence != nullptr) text += fmt::format(" and {}", effect(*member.evidence, look_));
      list.push_back(std::move(text));
    }
    return first_and_last(std::move(list)) + ".";
  }

  [[nodiscard]] std::optional<double> mean(const std::string& method, const metrics::StoredMetric& metric) const {
    const Pool pool = pool_of(data_, method, results::CellKind::quality, metric.name);
    return pool.values.empty() ? std::nullopt : std::optional(metrics::mean_of(pool.values));
  }

  /// How long a token takes, where that is beyond the spread of repeats.
  [[nodiscard]] std::string times() const {
    std::vector<std::string> slower, faster, same;
    for (const std::string& method : data_.methods()) {
      const auto test = time_test(data_, method, metrics::kInterTokenLatencyMs.name);
      if (method == data_.baseline() || !test) continue;
      const std::string who = marked_label(
          said(method), is_emulated(data_, method, results::CellKind::timing, metrics::kInterTokenLatencyMs.name));
      const std::string factor = fmt::format("{} ({:.2g} times as long)", who, test->ratio);
      (test->verdict == Verdict::worse    ? slower
       : test->verdict == Verdict::better ? faster
                                          : same)
          .push_back(test->verdict == Verdict::worse || test->verdict == Verdict::better ? factor : who);
    }
    if (slower.empty() && faster.empty() && same.empty()) return "";
    std::string text = fmt::format("On this machine, beside {}, a token", said(data_.baseline()));
    if (!slower.empty()) text += fmt::format(" takes longer under {}", listed(slower));
    if (!faster.empty()) text += fmt::format("{} is faster under {}", slower.empty() ? "" : ";", listed(faster));
    if (!same.empty()) {
      text += fmt::format("{} shows no difference in time beyond that of repeats under {}",
                          slower.empty() && faster.empty() ? "" : ";", listed(same));
    }
    return text + ".";
  }

  /// The loss that so few samples mostly miss.
  [[nodiscard]] std::string power() const {
    int64_t samples = 0;
    double largest = 0;
    for (const std::string& workload : data_.workloads()) {
      samples = std::max(samples, comparisons_.samples(workload));
      largest = std::max(largest, comparisons_.detectable(workload));
    }
    if (samples == 0) return "";
    std::string text = fmt::format("{} samples of each of {} workloads", samples, data_.workloads().size());
    if (data_.workloads().size() == 1)
      text = fmt::format("{} {} of one workload", samples, samples == 1 ? "sample" : "samples");
    return largest > 0 && have_one_look(data_)
               ? fmt::format("With {}, a difference below {} on one of them mostly goes unseen.", text,
                             amount(look_.scale * largest, look_))
               : fmt::format("All of this is from {}.", text);
  }

  [[nodiscard]] std::string outcomes() const {
    const auto count = [&](results::CellState state) {
      return std::ranges::count_if(data_.cells, [&](const CellData& cell) { return cell.row.state == state; });
    };
    std::vector<std::string> without;
    if (const int64_t failed = count(results::CellState::failed); failed > 0)
      without.push_back(fmt::format("{} cells that failed", failed));
    if (const int64_t idle = count(results::CellState::inactive); idle > 0)
      without.push_back(fmt::format("{} cells whose method never acted", idle));
    if (const int64_t missing = count(results::CellState::missing); missing > 0)
      without.push_back(fmt::format("{} cells whose method's weights are missing", missing));
    if (without.empty()) return "";
    return fmt::format("Without numbers: {}; they are listed below.", fmt::join(without, ", "));
  }

  /// Answers that a judge model has yet to mark.
  [[nodiscard]] std::string unjudged() const {
    std::map<std::string, int64_t> waiting;
    for (const CellData& cell : data_.cells) {
      for (const auto& [metric, answers] : cell.unjudged) waiting[metric] += answers;
    }
    std::vector<std::string> each;
    for (const auto& [metric, answers] : waiting) each.push_back(fmt::format("{} answers for {}", answers, metric));
    if (each.empty()) return "";
    return fmt::format(
        "A judge model has yet to mark {}: `kvarena judge DATABASE --judge-url URL --judge-model NAME` asks one.",
        listed(each));
  }

  const ExperimentData& data_;
  bool unlike_;
  const Comparisons& comparisons_;
  MetricLook look_;
};

}  // namespace

std::optional<Section> summary_section(const ModelCells& model, bool unlike_prompts) {
  if (model.data.workloads().empty()) return std::nullopt;
  Section section{.id = "summary", .title = "Summary", .paragraphs = Summary(model, unlike_prompts).sentences()};
  section.charts = trade_off_charts(model.data);
  if (section.paragraphs.empty() && section.charts.empty()) return std::nullopt;
  return section;
}

}  // namespace kvarena::reports
