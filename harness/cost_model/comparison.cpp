#include "harness/cost_model/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/markdown.h"
#include "harness/cost_model/comparison_parts.h"
#include "harness/cost_model/description.h"

namespace kvarena::cost_model {
namespace {

using nlohmann::json;

using Kind = std::vector<ComparedFigure> (*)(ComparisonReader&);
const std::map<std::string, Kind> kKinds = {{"decoding", compare_decoding},
                                            {"staggered", compare_staggered},
                                            {"remote_prefix", compare_remote_prefix},
                                            {"placement", compare_placement},
                                            {"transfers", compare_transfers}};

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kKinds) names.push_back(name);
  return names;
}

struct Heading {
  std::string title;
  std::string source;
  std::string kind;

  void parameters(ParameterVisitor& p) {
    p("title", title).required();
    p("source", source).required();
    p("kind", kind).required().one_of(kind_names());
  }
};

const std::vector<std::string> kOtherKeys = {"text", "all", "rows", "unknowns", "efficiency", "contexts", "tiers"};

std::string efficiency_line(const Efficiency& e) {
  return fmt::format("{:g} of memory bandwidth, {:g} of FLOP/s, {:g} of links, {:g} of memory usable: {}", e.memory,
                     e.compute, e.link, e.usable_memory, e.source);
}

std::string number(double value) {
  if (std::abs(value) >= 100) return fmt::format("{:.0f}", value);
  return std::abs(value) >= 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value);
}

std::string difference_text(const ComparedFigure& figure) {
  if (!figure.published) return "";
  const double percent = 100 * figure.difference();
  return std::abs(percent) < 0.5 ? "0%" : fmt::format("{:+.0f}%", percent);
}

std::string table(const Comparison& comparison) {
  std::vector<std::string> unknowns;  // each told once, below the table
  std::string text = "| row | figure | published | modelled | difference | |\n|---|---|---:|---:|---:|---|\n";
  for (const ComparedFigure& figure : comparison.figures) {
    std::string mark = figure.within_tolerance() ? "" : "**unexplained**";
    if (!figure.within_tolerance() && !figure.unknown.empty()) {
      const auto known = std::ranges::find(unknowns, figure.unknown);
      mark = fmt::format("unknown {}", known - unknowns.begin() + 1);
      if (known == unknowns.end()) unknowns.push_back(figure.unknown);
    }
    text += markdown_row({figure.row, figure.quantity, figure.published ? number(*figure.published) : "drawn",
                          number(figure.modelled), difference_text(figure), mark});
  }
  for (size_t i = 0; i < unknowns.size(); ++i) text += fmt::format("\nUnknown {}: {}\n", i + 1, unknowns[i]);
  return text;
}

/// The list under "shown", each one of `names`.
std::vector<std::string> shown_quantities(const json& row, const std::string& row_place,
                                          const std::vector<std::string>& names) {
  const json list = row.value("shown", json::array());
  std::vector<std::string> shown;
  for (const json& item : list) {
    if (!item.is_string() || std::ranges::find(names, item.get<std::string>()) == names.end()) {
      fail({.place = row_place + ".shown",
            .found = brief(item),
            .expected = fmt::format("some of: {}", fmt::join(names, ", "))});
    }
    shown.push_back(item);
  }
  return shown;
}

}  // namespace

bool ComparedFigure::within_tolerance() const { return std::abs(difference()) <= kHeadlineTolerance + 1e-12; }

ComparisonReader::ComparisonReader(json whole, std::string place, DescriptionFolders folders)
    : whole_(std::move(whole)), place_(std::move(place)), folders_(std::move(folders)) {
  if (!whole_.contains("rows") || !whole_["rows"].is_array() || whole_["rows"].empty()) {
    fail({.place = place_ + ".rows", .found = brief(whole_.value("rows", json())), .expected = "a list of rows"});
  }
}

json ComparisonReader::row(size_t index, const std::string& place) const {
  json merged = whole_.value("all", json::object());
  const json& own = whole_["rows"][index];
  if (!own.is_object()) fail({.place = place, .found = brief(own), .expected = "an object"});
  merged.merge_patch(own);
  return merged;
}

std::vector<ComparedFigure> ComparisonReader::each_row(
    const std::function<std::vector<ComparedFigure>(const json& row, const std::string& row_place)>& compare) const {
  std::vector<ComparedFigure> figures;
  for (size_t i = 0; i < whole_["rows"].size(); ++i) {
    const std::string place = fmt::format("{}.rows[{}]", place_, i);
    const std::vector<ComparedFigure> found = compare(row(i, place), place);
    figures.insert(figures.end(), found.begin(), found.end());
  }
  return figures;
}

void ComparisonReader::note_input(const std::string& line) {
  if (std::ranges::find(inputs_, line) == inputs_.end()) inputs_.push_back(line);
}

Hardware ComparisonReader::hardware(const json& row, const std::string& row_place) {
  const std::string name = row.value("hardware", "");
  if (name.empty()) fail({.place = row_place + ".hardware", .found = "nothing", .expected = "a name"});
  Hardware found = read_hardware(find_description(name, folders_.hardware));
  if (whole_.contains("efficiency")) {
    std::vector<std::string> problems;
    read_part(whole_["efficiency"], place_ + ".efficiency", found.efficiency, problems);
    throw_problems(problems);
  }
  note_input(fmt::format("`{}`: {}, {:g} GiB, {:g} GB/s, {:g} TFLOP/s an accelerator, host link {:g} GB/s", name,
                         found.title, found.memory_gib.value, found.memory_gb_per_s.value,
                         found.compute_tflop_per_s.value, found.link("host").gb_per_s));
  note_input(efficiency_line(found.efficiency));
  return found;
}

ModelShape ComparisonReader::shape(const json& row, const std::string& row_place) {
  const std::string name = row.value("shape", "");
  if (name.empty()) fail({.place = row_place + ".shape", .found = "nothing", .expected = "a name"});
  ModelShape found = read_shape(find_description(name, folders_.shapes));
  note_input(fmt::format("`{}`: {}, {:.2f} GB of weights and {} bytes a cached token in 16 bits", name, found.title,
                         2e-9 * static_cast<double>(found.parameter_count()), 2 * found.numbers_per_entry()));
  return found;
}

std::vector<ComparedFigure> ComparisonReader::compare(
    const json& row, const std::string& row_place,
    const std::vector<std::pair<std::string, std::optional<double>>>& modelled) const {
  std::vector<std::string> names;
  for (const auto& [quantity, value] : modelled) names.push_back(quantity);
  const json published = row.value("published", json::object()), unknown = row.value("unknown", json::object());
  for (const auto& [quantity, value] : published.items()) {
    if (std::ranges::find(names, quantity) != names.end() && value.is_number()) continue;
    fail({.place = fmt::format("{}.published.{}", row_place, quantity),
          .found = brief(value),
          .expected = fmt::format("a number for one of: {}", fmt::join(names, ", "))});
  }
  const std::vector<std::string> shown = shown_quantities(row, row_place, names);
  std::vector<ComparedFigure> figures;
  for (const auto& [quantity, value] : modelled) {
    const bool printed = published.contains(quantity);
    if (!printed && std::ranges::find(shown, quantity) == shown.end()) continue;
    ComparedFigure figure{.row = row.value("label", ""), .quantity = quantity, .modelled = value.value_or(0)};
    if (printed) figure.published = published[quantity].get<double>();
    if (unknown.contains(quantity)) {
      const auto key = unknown[quantity].get<std::string>();
      figure.unknown = whole_.value("unknowns", json::object()).value(key, key);
    }
    figures.push_back(std::move(figure));
  }
  return figures;
}

CacheScheme read_row_and_scheme(const json& row, const std::string& row_place,
                                const std::function<void(ParameterVisitor&)>& parameters) {
  const std::vector<std::string> others = {"hardware", "shape", "scheme", "published", "shown", "unknown"};
  CacheScheme scheme;
  std::vector<std::string> problems = read_parameters(row, row_place, parameters, others);
  if (row.contains("scheme")) read_part(row["scheme"], row_place + ".scheme", scheme, problems);
  throw_problems(problems);
  return scheme;
}

Comparison read_comparison(const std::filesystem::path& file, const DescriptionFolders& folders) {
  json whole = parse_object(read_file(file), file.string());
  Heading heading;
  std::vector<std::string> problems = read_parameters(
      whole, file.string(), [&](ParameterVisitor& p) { heading.parameters(p); }, kOtherKeys);
  throw_problems(problems);
  Comparison comparison{.name = file.stem().string(), .title = heading.title, .source = heading.source};
  for (const json& paragraph : whole.value("text", json::array())) comparison.paragraphs.push_back(paragraph);
  ComparisonReader reader(std::move(whole), file.string(), folders);
  comparison.figures = kKinds.at(heading.kind)(reader);
  comparison.inputs = reader.inputs();
  return comparison;
}

std::string comparison_page(const std::vector<Comparison>& comparisons) {
  size_t all = 0, within = 0, explained = 0, drawn = 0;
  for (const Comparison& comparison : comparisons) {
    for (const ComparedFigure& figure : comparison.figures) {
      if (!figure.published) {
        ++drawn;
        continue;
      }
      ++all;
      if (figure.within_tolerance()) {
        ++within;
      } else if (!figure.unknown.empty()) {
        ++explained;
      }
    }
  }
  std::string text = fmt::format(
      "# Published and modelled\n\nFigures of the papers beside what `harness/cost_model` models from the inputs that "
      "the papers state; nothing here was measured.\nOf {} figures {} are within {:.0f}%; for {} the paper leaves an "
      "input open, which is named; {} more are drawn in the papers and printed nowhere.\nNo constant was fitted to a "
      "published figure: shares of peaks are the assumptions "
      "of `harness/cost_model/hardware.h` unless a file says otherwise.\nInputs are files, `configs/modelled`, "
      "`configs/hardware`, `configs/shapes`; `kvarena estimate --published` makes this\npage, and a test compares "
      "it.\n",
      all, within, 100 * kHeadlineTolerance, explained, drawn);
  for (const Comparison& comparison : comparisons) {
    text += fmt::format("\n## {}\n\n{}. Inputs: `configs/modelled/{}.json`.\n", comparison.title, comparison.source,
                        comparison.name);
    for (const std::string& paragraph : comparison.paragraphs) text += fmt::format("\n{}\n", paragraph);
    text += fmt::format("\n{}\n", table(comparison));
    for (const std::string& input : comparison.inputs) text += fmt::format("- {}\n", input);
  }
  return text;
}

}  // namespace kvarena::cost_model
