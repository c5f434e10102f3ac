#include "harness/experiment/papers.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "harness/experiment/config_parts.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kIndex = "paper.json";

/// The list of strings under `key`, taken out of `object`.
std::vector<std::string> take_strings(json& object, const char* key, const std::string& place, Problems& problems) {
  const json list = object.value(key, json::array());
  object.erase(key);
  if (list.is_array() && std::ranges::all_of(list, [](const json& item) { return item.is_string(); }))
    return list.get<std::vector<std::string>>();
  problems.add(place.empty() ? key : fmt::format("{}.{}", place, key), brief(list), "a list of strings");
  return {};
}

/// The object under "parts", taken out of an item.
ItemParts take_parts(json& entry, const std::string& key, Problems& problems) {
  ItemParts parts;
  if (!entry.contains("parts")) return parts;
  const json whole = entry["parts"];
  entry.erase("parts");
  problems.append(
      read_parameters(whole, problems.at(key + ".parts"),
                      [&](ParameterVisitor& p) {
                        p("covered", parts.covered).required().min(0).doc("parts that the config or command reaches");
                        p("all", parts.all).required().min(1).doc("parts of the item");
                        p("of", parts.of).required().doc("what its parts are: columns, panels, methods");
                      },
                      {}));
  if (parts.covered >= parts.all)
    problems.add(key + ".parts", parts.text(), "fewer than all", "", "leave it out where all is covered");
  return parts;
}

void check_item(const PaperItem& item, const std::string& key, Problems& problems) {
  const bool reproducible = item.kind != ItemKind::illustration;
  if (reproducible && !item.covered() && item.missing.empty()) {
    problems.add(key, "neither a config, nor a command, nor a reason",
                 fmt::format("{}.json beside {}, or \"command\", or \"missing\"", item.item, kIndex));
  }
  if (item.covered() && !item.missing.empty()) {
    problems.add(key + ".missing", brief(item.missing), "nothing, because the item can be reproduced", "",
                 "what a config leaves out belongs in \"notes\"");
  }
  if (!item.small.empty() && (item.config.empty() || !fs::is_regular_file(item.small)))
    problems.add(key + ".small", brief(item.small.string()), "a config there is, of an item with a config");
  if (!item.small_scaled.empty() && item.small.empty())
    problems.add(key + ".small_scaled", brief(json(item.small_scaled)), "\"small\", whose settings these change");
  if (!item.command.empty() && item.kind != ItemKind::modelled)
    problems.add(key + ".command", brief(item.command), "a command of an item of kind \"modelled\" alone");
}

PaperItem read_item(json entry, const fs::path& folder, const std::string& key, Problems& problems) {
  if (!entry.is_object()) {
    problems.add(key, brief(entry), "an object with \"item\" and \"title\"");
    return {};
  }
  PaperItem item;
  item.notes = take_strings(entry, "notes", key, problems);
  item.scaled = take_strings(entry, "scaled", key, problems);
  item.small_scaled = take_strings(entry, "small_scaled", key, problems);
  item.parts = take_parts(entry, key, problems);
  std::string kind = "measured", small;
  problems.append(read_parameters(
      entry, problems.at(key),
      [&](ParameterVisitor& p) {
        p("item", item.item).required().doc("its name in the paper and its config's: table1, figure2-left");
        p("title", item.title).required().doc("what it shows");
        p("kind", kind).one_of({"measured", "modelled", "illustration"}).doc("how it comes to be");
        p("command", item.command).doc("what prints a modelled item");
        p("missing", item.missing).doc("why there is no config or command yet");
        p("small", small).doc("config that shows it on two cores, beside the folder of papers: contexts.json");
        p("gpu", item.gpu).doc("whether its speed figures need a GPU");
      },
      {}));
  item.kind = kind == "modelled"       ? ItemKind::modelled
              : kind == "illustration" ? ItemKind::illustration
                                       : ItemKind::measured;
  const fs::path config = folder / (item.item + ".json");
  if (!item.item.empty() && fs::exists(config)) item.config = config;
  if (!small.empty()) item.small = folder.parent_path().parent_path() / small;
  check_item(item, key, problems);
  return item;
}

/// Adds a problem for each config of the folder that the index does not name.
void check_strays(const Paper& paper, const fs::path& folder, Problems& problems) {
  for (const auto& file : fs::directory_iterator(folder)) {
    const std::string stem = file.path().stem().string();
    if (file.path().extension() != ".json" || file.path().filename() == kIndex) continue;
    if (std::ranges::any_of(paper.items, [&](const PaperItem& item) { return item.item == stem; })) continue;
    problems.add("items", fmt::format("nothing of {}", file.path().filename().string()),
                 "an item of that name, or no such file");
  }
}

Paper read_paper(const fs::path& folder) {
  const fs::path path = folder / kIndex;
  json whole = parse_json(read_file(path), path.string());
  if (!whole.is_object()) fail({.place = path.string(), .found = brief(whole), .expected = "an object"});
  Problems problems(path.string());
  const json items = whole.value("items", json());
  whole.erase("items");
  const std::vector<std::string> notes = take_strings(whole, "notes", "", problems);
  Paper paper{.name = folder.filename().string()};
  problems.append(read_parameters(whole, path.string(),
                                  [&](ParameterVisitor& p) {
                                    p("title", paper.title).required().doc("of the paper");
                                    p("source", paper.source).required().doc("where it is: arXiv:2503.16163");
                                  },
                                  {}));
  if (!items.is_array() || items.empty()) problems.add("items", brief(items), "a list with at least one entry");
  std::set<std::string> names;
  for (size_t i = 0; items.is_array() && i < items.size(); ++i) {
    const std::string key = fmt::format("items[{}]", i);
    paper.items.push_back(read_item(items[i], folder, key, problems));
    PaperItem& item = paper.items.back();
    if (!item.config.empty()) item.notes.insert(item.notes.begin(), notes.begin(), notes.end());
    if (!names.insert(item.item).second)
      problems.add(key + ".item", fmt::format("\"{}\" twice", item.item), "a name of its own");
  }
  check_strays(paper, folder, problems);
  problems.throw_if_any();
  return paper;
}

}  // namespace

std::string ItemParts::text() const { return of.empty() ? "" : fmt::format("{} of {} {}", covered, all, of); }

const char* to_string(ItemKind kind) {
  switch (kind) {
    case ItemKind::measured: return "measured";
    case ItemKind::modelled: return "modelled";
    case ItemKind::illustration: return "illustration";
  }
  return "";
}

std::vector<Paper> read_papers(const fs::path& folder) {
  if (!fs::is_directory(folder))
    fail({.place = folder.string(), .found = "no such folder", .expected = "one folder a paper, each with paper.json"});
  std::vector<Paper> papers;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (fs::exists(entry.path() / kIndex)) papers.push_back(read_paper(entry.path()));
  }
  std::ranges::sort(papers, {}, &Paper::name);
  return papers;
}

std::optional<PaperItem> find_item(const fs::path& folder, const fs::path& config) {
  for (const Paper& paper : read_papers(folder)) {
    for (const PaperItem& item : paper.items) {
      std::error_code absent;
      if (!item.config.empty() && fs::equivalent(item.config, config, absent)) return item;
    }
  }
  return std::nullopt;
}

}  // namespace kvarena::experiment
