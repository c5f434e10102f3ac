// kvarena methods [METHOD]: what can be evaluated, and with which settings.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/method_pages.h"
#include "harness/cli/registry_text.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/page.h"
#include "harness/method/budget_rule.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

struct Options {
  std::optional<std::string> name;
  std::optional<std::string> family;
  bool json = false;
  std::filesystem::path pages;

  void declare(OptionSet& o) {
    std::vector<std::string> families;
    for (const Family value : kFamilies) families.emplace_back(to_string(value));
    o.positional("METHOD", name).help("the method to describe; without it all are listed");
    o.option("family", "FAMILY", family).choices(families).help("list one family");
    o.flag("json", json).help("write JSON");
    o.option("pages", "FOLDER", pages).help("write a Markdown page for each family, and one that lists them");
  }
};

json entry_json(const MethodEntry& entry) {
  return {{"name", entry.info.name},
          {"title", entry.info.title},
          {"family", to_string(entry.family)},
          {"summary", entry.info.summary},
          {"paper", entry.info.paper},
          {"needs", needs_of(entry)},
          {"parameters", parameters_json(entry.parameters())}};
}

void describe_budget_rules() {
  print(Page().text("\n").bold("Budget rules").text("\n"));
  for (const BudgetRuleInfo& rule : budget_rules()) {
    print(Page().bold(rule.name).text(fmt::format(": {}\n", rule.summary)).columns(parameter_rows(rule.parameters)));
  }
}

void describe_method(const MethodEntry& entry) {
  print(Page()
            .bold(entry.info.title)
            .text(fmt::format(" ({})\n", entry.info.name))
            .wrapped(entry.info.summary)
            .text("\n\n"));
  const json example = example_settings(entry);
  print(Page().columns(fact_rows({{"family", to_string(entry.family)},
                                  {"paper", entry.info.paper},
                                  {"needs", fmt::format("{}", fmt::join(needs_of(entry), ", "))},
                                  {"in a config", example.is_null() ? "" : config_form(example)},
                                  {"on the command line", example.is_null() ? "" : short_form(example)}})));
  const auto parameters = entry.parameters();
  if (parameters.empty()) {
    print("\nNo settings.\n");
  } else {
    print(Page().text("\n").bold("Settings").text("\n").columns(parameter_rows(parameters)));
  }
  const auto ruled = [](const ParameterInfo& info) { return info.name == "budget_rule"; };
  if (std::ranges::any_of(parameters, ruled)) describe_budget_rules();
}

void list_methods(const std::vector<const MethodEntry*>& entries) {
  bool first = true;
  for (const Family family : kFamilies) {
    std::vector<std::vector<std::string>> rows;
    for (const MethodEntry* entry : entries) {
      if (entry->family == family) rows.push_back({entry->info.name, entry->info.summary});
    }
    if (rows.empty()) continue;
    print(Page().text(first ? "" : "\n").bold(to_string(family)).text("\n").columns(std::move(rows)));
    first = false;
  }
}

const MethodEntry& method_named(const std::string& name) {
  if (const MethodEntry* entry = find_method(name)) return *entry;
  std::vector<std::string> names;
  for (const MethodEntry& entry : method_registry()) names.push_back(entry.info.name);
  fail({.place = fmt::format("no method \"{}\"", name),
        .nearest = nearest_name(name, names),
        .action = "`kvarena methods` lists all"});
}

int write_pages(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder)) {
    fail({.place = folder.string(),
          .found = error ? error.message() : "a file",
          .expected = "a folder to write pages into"});
  }
  write_file(folder / "README.md", families_page());
  for (const Family family : kFamilies) {
    write_file(folder / fmt::format("{}.md", to_string(family)), family_page(family));
  }
  print(fmt::format("{}: {} pages\n", folder.string(), kFamilies.size() + 1));
  return 0;
}

int run(const Options& options) {
  if (!options.pages.empty()) return write_pages(options.pages);
  if (options.name) {
    const MethodEntry& entry = method_named(*options.name);
    if (options.json) {
      print(fmt::format("{}\n", entry_json(entry).dump(2)));
    } else {
      describe_method(entry);
    }
    return 0;
  }
  std::vector<const MethodEntry*> entries;
  for (const MethodEntry& entry : method_registry()) {
    if (!options.family || *options.family == to_string(entry.family)) entries.push_back(&entry);
  }
  if (options.json) {
    json list = json::array();
    for (const MethodEntry* entry : entries) list.push_back(entry_json(*entry));
    print(fmt::format("{}\n", list.dump(2)));
  } else if (entries.empty()) {
    print(fmt::format("No method of the family {} yet.\n", *options.family));
  } else {
    list_methods(entries);
  }
  return 0;
}

}  // namespace

Command methods_command() {
  const std::string name = example_method().substr(0, example_method().find(':'));
  return make_command<Options>({.name = "methods",
                                .summary = "list the methods, or describe one with its settings",
                                .examples = {{"kvarena methods", "all, by family"},
                                             {"kvarena methods " + name, "its paper, settings, defaults, ranges"},
                                             {"kvarena methods --json", "everything, for programs"}}},
                               run);
}

}  // namespace kvarena::cli
