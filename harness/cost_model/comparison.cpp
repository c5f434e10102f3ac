#include "harness/cost_model/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/markdown.h"
#include "harness/cost_model/calibrated_constants.h"
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

const std::vector<std::string> kOtherKeys = {"text",       "all",      "rows",  "unknowns",
                                             "efficiency", "contexts", "tiers", "calibrated"};

std::string efficiency_line(const Efficiency& e) {
  const std::string kernels = e.kernel_us > 0 ? fmt::format(", {:.3g} us a kernel", e.kernel_us) : "";
  return fmt::format("{:.3g} of memory bandwidth, {:g} of FLOP/s, {:g} of links, {:g} of memory usable{}: {}", e.memory,
                     e.compute, e.link, e.usable_memory, kernels, e.source);
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

std::string published_text(const ComparedFigure& figure) {
  if (!figure.published) return "drawn";
  return number(*figure.published) + (figure.upper ? " to " + number(*figure.upper) : "");
}

/// The last column of a figure's line; unknown inputs are numbered as they come, each told once below the table.
std::string mark_of(const ComparedFigure& figure, std::vector<std::string>& unknowns) {
  if (figure.spent) return "spent";
  if (!figure.repeats.empty()) return fmt::format("as `{}`", figure.repeats);
  if (figure.within_tolerance()) return figure.derived ? "derived" : "";
  if (figure.unknown.empty()) return figure.derived ? "derived" : "**unexplained**";
  const auto known = std::ranges::find(unknowns, figure.unknown);
  const auto index = known - unknowns.begin() + 1;
  if (known == unknowns.end()) unknowns.push_back(figure.unknown);
  const char* sort = figure.derived ? "derived; " : figure.explained() ? "" : "**unexplained**; ";
  return fmt::format("{}unknown {}: {} to {}", sort, index, number(figure.least), number(figure.most));
}

std::string table(const Comparison& comparison) {
  const bool calibrated = !comparison.constants.empty();
  std::vector<std::string> unknowns;
  std::vector<std::string> heads = {"row", "figure", "published", "modelled", "difference", ""};
  std::string rule = "|---|---|---:|---:|---:|---|";
  if (calibrated) {
    heads.insert(heads.end() - 1, "assumed");
    rule = "|---|---|---:|---:|---:|---:|---|";
  }
  std::string text = markdown_row(heads) + rule + "\n";
  for (const ComparedFigure& figure : comparison.figures) {
    std::vector<std::string> cells = {figure.row,
                                      figure.quantity,
                                      published_text(figure),
                                      number(figure.modelled),
                                      difference_text(figure),
                                      mark_of(figure, unknowns)};
    if (calibrated) cells.insert(cells.end() - 1, number(figure.assumed));
    text += markdown_row(cells);
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

const json kNoUnknowns = json::object();

/// [low, high]
bool is_range(const json& value) {
  return value.is_array() && value.size() == 2 && value[0].is_number() && value[1].is_number() && value[0] < value[1];
}

}  // namespace

double ComparedFigure::difference() const {
  if (!published) return 0;
  return modelled / std::clamp(modelled, *published, upper.value_or(*published)) - 1;
}

bool ComparedFigure::within_tolerance() const { return std::abs(difference()) <= kHeadlineTolerance + 1e-12; }

bool ComparedFigure::explained() const {
  return published && !unknown.empty() && least <= upper.value_or(*published) && *published <= most;
}

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

/// Values of figures with an unknown input, by quantity, at what the file says that it may be instead.
std::multimap<std::string, double> ComparisonReader::at_unknowns(const json& row, const std::string& row_place,
                                                                 const CompareRow& compare) const {
  std::multimap<std::string, double> values;
  const json named = row.value("unknown", json::object());
  for (const auto& [quantity, key] : named.items()) {
    if (!key.is_string()) continue;  // comparing refuses it
    for (const json& change : unknown(key, row_place + ".unknown." + quantity)["at"]) {
      json changed = row;
      changed.merge_patch(change);
      for (const ComparedFigure& figure : compare(changed, row_place))
        if (figure.quantity == quantity) values.emplace(quantity, figure.modelled);
    }
  }
  return values;
}

std::vector<ComparedFigure> ComparisonReader::each_row(const CompareRow& compare) const {
  std::vector<ComparedFigure> figures;
  for (size_t i = 0; i < whole_["rows"].size(); ++i) {
    const std::string place = fmt::format("{}.rows[{}]", place_, i);
    const json own = row(i, place);
    const auto elsewhere = at_unknowns(own, place, compare);  // first: later rows may be compared with the row itself
    for (ComparedFigure& figure : compare(own, place)) {
      figure.least = figure.most = figure.modelled;
      const auto [first, last] = elsewhere.equal_range(figure.quantity);
      for (auto there = first; there != last; ++there) {
        figure.least = std::min(figure.least, there->second);
        figure.most = std::max(figure.most, there->second);
      }
      figures.push_back(std::move(figure));
    }
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

const json& ComparisonReader::unknown(const std::string& key, const std::string& key_place) const {
  const json& unknowns = whole_.contains("unknowns") ? whole_["unknowns"] : kNoUnknowns;
  if (!unknowns.contains(key)) {
    std::vector<std::string> names;
    for (const auto& [name, text] : unknowns.items()) names.push_back(name);
    fail({.place = key_place,
          .found = fmt::format("\"{}\"", key),
          .expected = fmt::format("one of \"unknowns\": {}", fmt::join(names, ", "))});
  }
  const json& found = unknowns[key];
  const auto holds = [&](const char* part, json::value_t type) {
    return found.is_object() && found.contains(part) && found[part].type() == type && !found[part].empty();
  };
  if (!holds("text", json::value_t::string) || !holds("at", json::value_t::array) || found.size() != 2) {
    fail({.place = fmt::format("{}.unknowns.{}", place_, key),
          .found = brief(found),
          .expected = "\"text\", and \"at\": a list of changes of the row, between which the input lies"});
  }
  return found;
}

std::vector<ComparedFigure> ComparisonReader::compare(
    const json& row, const std::string& row_place,
    const std::vector<std::pair<std::string, std::optional<double>>>& modelled) const {
  std::vector<std::string> names;
  for (const auto& [quantity, value] : modelled) names.push_back(quantity);
  const json derived = row.value("derived", json::object()), open = row.value("unknown", json::object());
  const json repeats = row.value("repeats", json::object());
  json published = row.value("published", json::object());
  published.update(derived);
  for (const auto& [quantity, value] : published.items()) {
    if (std::ranges::find(names, quantity) != names.end() && (value.is_number() || is_range(value))) continue;
    fail({.place = fmt::format("{}.published.{}", row_place, quantity),
          .found = brief(value),
          .expected = fmt::format("a number, or [low, high], for one of: {}", fmt::join(names, ", "))});
  }
  for (const char* key : {"unknown", "repeats"}) {
    const json named = row.value(key, json::object());
    for (const auto& [quantity, value] : named.items()) {
      if (published.contains(quantity) && value.is_string()) continue;
      fail({.place = fmt::format("{}.{}.{}", row_place, key, quantity),
            .found = brief(value),
            .expected = "a name, for a quantity under \"published\""});
    }
  }
  const std::vector<std::string> shown = shown_quantities(row, row_place, names);
  std::vector<ComparedFigure> figures;
  for (const auto& [quantity, value] : modelled) {
    const bool printed = published.contains(quantity);
    if (!printed && std::ranges::find(shown, quantity) == shown.end()) continue;
    ComparedFigure figure{.row = row.value("label", ""), .quantity = quantity, .modelled = value.value_or(0)};
    if (printed) {
      const json& found = published[quantity];
      figure.published = (found.is_array() ? found[0] : found).get<double>();
      if (found.is_array()) figure.upper = found[1].get<double>();
    }
    figure.derived = derived.contains(quantity);
    figure.repeats = repeats.value(quantity, "");
    if (open.contains(quantity)) figure.unknown = unknown(open[quantity], row_place + ".unknown." + quantity)["text"];
    figures.push_back(std::move(figure));
  }
  return figures;
}

CacheScheme read_row_and_scheme(const json& row, const std::string& row_place,
                                const std::function<void(ParameterVisitor&)>& parameters) {
  const std::vector<std::string> others = {"hardware", "shape",   "scheme",  "published",
                                           "shown",    "unknown", "derived", "repeats"};
  CacheScheme scheme;
  std::vector<std::string> problems = read_parameters(row, row_place, parameters, others);
  if (row.contains("scheme")) read_part(row["scheme"], row_place + ".scheme", scheme, problems);
  throw_problems(problems);
  return scheme;
}

Comparison read_comparison(const std::filesystem::path& file, const DescriptionFolders& folders) {
  const json whole = parse_object(read_file(file), file.string());
  Heading heading;
  std::vector<std::string> problems = read_parameters(
      whole, file.string(), [&](ParameterVisitor& p) { heading.parameters(p); }, kOtherKeys);
  throw_problems(problems);
  Comparison comparison{.name = file.stem().string(), .title = heading.title, .source = heading.source};
  for (const json& paragraph : whole.value("text", json::array())) comparison.paragraphs.push_back(paragraph);
  std::vector<CalibratedConstant> taken;
  if (const json from = whole.value("calibrated", json()); from.is_string()) {
    taken = read_comparison(file.parent_path() / (from.get<std::string>() + ".json"), folders).constants;
  }
  CalibratedConstants constants(whole, file.string(), std::move(taken));
  comparison.figures = constants.find([&](const json& filled) {
    ComparisonReader reader(filled, file.string(), folders);
    std::vector<ComparedFigure> figures = kKinds.at(heading.kind)(reader);
    comparison.inputs = reader.inputs();
    return figures;
  });
  comparison.constants = constants.found();
  comparison.chosen = constants.chosen();
  return comparison;
}

namespace {

struct Counts {
  size_t printed = 0, within = 0, explained = 0, spent = 0, drawn = 0;
};

Counts count(const std::vector<Comparison>& comparisons) {
  Counts counts;
  for (const Comparison& comparison : comparisons) {
    for (const ComparedFigure& figure : comparison.figures) {
      if (!figure.published) ++counts.drawn;
      if (figure.spent && figure.repeats.empty()) ++counts.spent;
      if (!figure.counts()) continue;
      ++counts.printed;
      if (figure.within_tolerance()) {
        ++counts.within;
      } else if (figure.explained()) {
        ++counts.explained;
      }
    }
  }
  return counts;
}

/// Throws unless what `figure` repeats is there, once printed and once modelled.
void check_repeated(const ComparedFigure& figure, const std::string& name, const std::vector<Comparison>& all) {
  for (const Comparison& comparison : all) {
    if (comparison.name != figure.repeats) continue;
    for (const ComparedFigure& other : comparison.figures) {
      if (other.quantity == figure.quantity && other.published == figure.published && other.repeats.empty() &&
          std::abs(other.modelled / figure.modelled - 1) < 1e-9) {
        return;
      }
    }
  }
  fail({.place = fmt::format("{}, row \"{}\", {}", name, figure.row, figure.quantity),
        .found = fmt::format("{} modelled for a published {} that repeats {}", number(figure.modelled),
                             number(figure.published.value_or(0)), figure.repeats),
        .expected = "a figure there with both numbers",
        .action = "one published figure has one model"});
}

std::string constants_text(const Comparison& comparison) {
  std::string text;
  for (const CalibratedConstant& constant : comparison.constants) {
    text += fmt::format("- `{}`: {:.3g}, found from spent figures; assumed {:g}\n", constant.name, constant.value,
                        constant.assumed);
  }
  for (const std::string& chosen : comparison.chosen)
    text += fmt::format("- chosen to meet spent figures: {}\n", chosen);
  return text;
}

}  // namespace

std::string comparison_page(const std::vector<Comparison>& comparisons) {
  for (const Comparison& comparison : comparisons) {
    for (const ComparedFigure& figure : comparison.figures) {
      if (!figure.repeats.empty()) check_repeated(figure, comparison.name, comparisons);
    }
  }
  const Counts counts = count(comparisons);
  std::string text = fmt::format(
      "# Published and modelled\n\nFigures of the papers beside what `harness/cost_model` models from the inputs that "
      "the papers state; nothing here was measured.\nOf {} distinct printed figures {} are within {:.0f}%. {} more are "
      "met by a value of an input that the paper leaves open,\nbetween bounds that its text states; beside them stands "
      "what the model gives from bound to bound. {} are unexplained.\n{} others are spent: a constant or an input was "
      "found from them, so that they count nowhere. {} are drawn in the papers and\nprinted nowhere. Shares of peaks "
      "are the assumptions of `harness/cost_model/hardware.h` unless a file says otherwise. Where\nconstants are "
      "calibrated, the column \"assumed\" is the model before any figure of the paper was looked at. 0.9 of memory\n"
      "usable is the default of vLLM; for the papers' other programs it is an assumption. Inputs are files, "
      "`configs/modelled`,\n`configs/hardware`, `configs/shapes`; `kvarena estimate --published` makes this page, and "
      "a test compares it.\n",
      counts.printed, counts.within, 100 * kHeadlineTolerance, counts.explained,
      counts.printed - counts.within - counts.explained, counts.spent, counts.drawn);
  for (const Comparison& comparison : comparisons) {
    text += fmt::format("\n## {}\n\n{}. Inputs: `configs/modelled/{}.json`.\n", comparison.title, comparison.source,
                        comparison.name);
    for (const std::string& paragraph : comparison.paragraphs) text += fmt::format("\n{}\n", paragraph);
    text += fmt::format("\n{}\n", table(comparison));
    text += constants_text(comparison);
    for (const std::string& input : comparison.inputs) text += fmt::format("- {}\n", input);
  }
  return text;
}

}  // namespace kvarena::cost_model
