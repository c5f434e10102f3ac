#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "reports/reproduced.h"
#include "reports/sections.h"

namespace kvarena::reports {
namespace {

constexpr const char* kCaption =
    "Difference is reproduced minus published, in the unit that was printed. A published value inside the 95% interval "
    "of ours is marked so; what has no number here says why. Minimum: of the samples; relative: over the mean of the "
    "baseline, or of the best of the methods named; reduction: theirs over ours; gain: over theirs, less 1; reduction "
    "within 3%: of the fastest setting that loses no more of their quality; median drop: of the share of the "
    "baseline's value that samples lose; drop variation: deviation over mean of that share. Best for: share of the "
    "samples, of methods with about as many bytes; best ratio variation: of the share of bytes that is best removed, "
    "sample by sample. At equal quality: the time of the others, linear between their best settings, over the "
    "method's; at equal time: quality gained at its time to the first token; at equal rate: quality more than theirs "
    "at its tokens a second; load at equal time: its load over theirs, mean of the latencies that either has and both "
    "reach. \"all\" is the mean of the workloads.";

enum Place : size_t { method, workload, metric, unit, published, reproduced, difference, finding, source, printed_for };

/// "match", "differs", or whether the printed bound holds.
std::string finding_of(const results::PublishedValue& printed, const Ours& ours, const NumberFormat& format) {
  if (printed.upper) {
    const bool inside = printed.value <= ours.value && ours.value <= *printed.upper;
    return inside ? "within the range" : "differs";
  }
  const bool match = format_number(ours.value, format) == format_number(printed.value, format);
  if (printed.bound.starts_with('<') || printed.bound.starts_with('>')) {
    const bool below = printed.bound.starts_with('<') ? ours.value < printed.value : ours.value > printed.value;
    return below || (match && printed.bound.ends_with('=')) ? "holds" : "does not hold";
  }
  if (match) return "match";
  const bool inside = ours.interval && ours.interval->low <= printed.value && printed.value <= ours.interval->high;
  return inside ? "within interval" : "differs";
}

/// Differences that keep a number of ours from being what was printed: project-made samples, another model. "" for
/// none.
std::string unlike(const ExperimentData& data, const results::PublishedValue& printed, const CellData& ours) {
  std::vector<std::string> reasons;
  if (ours.row.cell.workload.ends_with(kInventedLabel)) reasons.push_back(results::invented_mark(data.invented));
  if (ours.row.cell.model != printed.model) reasons.push_back(fmt::format("{} was run", ours.row.cell.model));
  return fmt::format("{}", fmt::join(reasons, "; "));
}

/// Published numbers by what stands beside them.
struct Tally {
  int64_t all = 0, beside = 0, comparable = 0;
  std::map<std::string, int64_t> without;  // by reason

  /// "12 of 15 published numbers have one of ours beside them, ...".
  [[nodiscard]] std::string text() const {
    std::string said = fmt::format(
        "{} of {} published numbers have one of ours beside them, {} of these one of the same model and data.", beside,
        all, comparable == 0 ? "none" : fmt::format("{}", comparable));
    std::vector<std::string> reasons;
    for (const auto& [reason, count] : without) reasons.push_back(fmt::format("{} ({})", reason, count));
    if (!reasons.empty()) said += fmt::format(" Without one: {}.", fmt::join(reasons, ", "));
    return said;
  }
};

/// Fills what is ours in a row: reproduced, difference, finding.
void reproduce(const ExperimentData& data, const results::PublishedValue& printed, const NumberFormat& format,
               std::vector<TableCell>& cells, Tally& tally) {
  const Ours ours = ours_of(data, printed);
  ++tally.all;
  if (!ours.missing.empty()) {
    ++tally.without[ours.missing];
    cells[reproduced] = state_cell(ours.cell).value_or(TableCell{});
    cells[finding] = text_cell("not comparable: " + ours.missing);
    return;
  }
  ++tally.beside;
  if (const std::string reason = unlike(data, printed, *ours.cell); !reason.empty()) {
    cells[reproduced] = not_comparable_cell(ours.value, reason);
    cells[reproduced].format = format;
    cells[finding] = text_cell("not comparable: " + reason);
    return;
  }
  ++tally.comparable;
  cells[reproduced] = number_cell(ours.value, ours.interval);
  cells[reproduced].detail = fmt::format("{} samples", ours.samples);
  mark_origin(cells[reproduced], *ours.values);
  if (!printed.upper && (printed.bound.empty() || printed.bound == "~")) {
    cells[difference] = number_cell(ours.value - printed.value);
    cells[difference].is_signed = true;
    mark_origin(cells[difference], *ours.values);
  }
  for (const Place at : {reproduced, difference}) cells[at].format = format;
  cells[finding] = text_cell(finding_of(printed, ours, format));
}

/// The printed value; one that is a bound, about so much or a range says so in words.
TableCell printed_cell(const results::PublishedValue& printed, const NumberFormat& format) {
  static const std::map<std::string_view, const char*> kWords = {
      {"~", "about"}, {"<", "below"}, {"<=", "at most"}, {">", "above"}, {">=", "at least"}};
  if (printed.upper) return text_cell(fmt::format("{:g} to {:g}", printed.value, *printed.upper));
  if (!printed.bound.empty()) return text_cell(fmt::format("{} {:g}", kWords.at(printed.bound), printed.value));
  TableCell cell = number_cell(printed.value);
  cell.format = format;
  return cell;
}

std::string metric_text(const results::PublishedValue& printed) {
  if (printed.statistic == results::Statistic::mean) return printed.metric;
  return fmt::format("{}, {}{}{}", printed.metric, results::name(printed.statistic),
                     printed.against.empty() ? "" : " of ", fmt::join(printed.against, "; "));
}

/// Scores as papers print them, other quantities with the digits that matter.
NumberFormat format_for(const std::string& unit) {
  const bool share = unit == "%" || unit == "percent";
  return share ? NumberFormat{.style = NumberStyle::fixed, .digits = 1}
               : NumberFormat{.style = NumberStyle::significant, .digits = 4};
}

}  // namespace

std::optional<Section> published_section(const ExperimentData& data) {
  Table table{.id = "published",
              .title = "Published and reproduced",
              .caption = kCaption,
              .columns = {{.title = "Method", .numeric = false},
                          {.title = "Workload", .numeric = false},
                          {.title = "Metric", .numeric = false},
                          {.title = "Unit", .numeric = false},
                          {.title = "Published"},
                          {.title = "Reproduced"},
                          {.title = "Difference"},
                          {.title = "Finding", .numeric = false},
                          {.title = "Source", .numeric = false},
                          {.title = "Printed for", .numeric = false}}};
  Tally tally;
  for (const results::PublishedValue& value : data.experiment.published) {
    if (data.cells.empty()) continue;
    const NumberFormat format = format_for(value.unit);
    std::vector<TableCell> cells(table.columns.size());
    cells[method] = text_cell(value.method);
    cells[workload] = text_cell(value.workload);
    cells[metric] = text_cell(metric_text(value));
    cells[unit] = text_cell(value.unit);
    cells[published] = printed_cell(value, format);
    cells[source] = text_cell(value.source);
    if (!value.note.empty()) cells[source].notes.push_back(footnote(table, value.note));
    cells[printed_for] = text_cell(value.model);
    reproduce(data, value, format, cells, tally);
    table.rows.push_back({.cells = std::move(cells)});
  }
  if (table.rows.empty()) return std::nullopt;
  return Section{.id = "published",
                 .title = "Published and reproduced",
                 .paragraphs = {tally.text()},
                 .tables = {std::move(table)}};
}

}  // namespace kvarena::reports
