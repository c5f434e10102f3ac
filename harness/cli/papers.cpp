// kvarena papers [PAPER[/ITEM]]: every table and figure of the papers, and what reproducing it needs.

#include "harness/experiment/papers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/cli/commands.h"
#include "harness/cli/paper_needs.h"
#include "harness/cli/registry_text.h"
#include "harness/core/error.h"
#include "harness/core/home.h"
#include "harness/core/own_files.h"
#include "harness/core/page.h"
#include "harness/evaluate/model_evaluator.h"
#include "harness/experiment/config.h"

namespace kvarena::cli {
namespace {

using experiment::ExperimentConfig;
using experiment::ItemKind;
using experiment::ModelEntry;
using experiment::Paper;
using experiment::PaperItem;
using nlohmann::json;
namespace fs = std::filesystem;

struct Options {
  std::optional<std::string> item;
  fs::path data_dir;
  bool json = false;

  void declare(OptionSet& o) {
    o.positional("PAPER[/ITEM]", item).help("a paper, or one of its tables and figures; without it all are listed");
    o.option("data", "FOLDER", data_dir)
        .help("where official data files are looked for")
        .default_text("$KVARENA_DATA, or the small project-made samples");
    o.flag("json", json).help("write JSON");
  }
};

/// An item with its config read.
struct Read {
  const Paper* paper;
  const PaperItem* item;
  std::optional<ExperimentConfig> config;
  Missing missing;

  [[nodiscard]] std::string name() const { return paper->name + "/" + item->item; }
  [[nodiscard]] bool runnable() const { return item->covered() && missing.nothing() && !item->gpu; }
};

Read read_item(const Paper& paper, const PaperItem& item, const PresentFiles& here) {
  Read read{.paper = &paper, .item = &item};
  if (item.config.empty()) return read;
  read.config = experiment::load_config(item.config, {.models_folder = own_file("configs/models")},
                                        evaluate::registry_validators());
  read.missing = here.missing(*read.config);
  return read;
}

std::vector<std::string> model_names(const Missing& missing) {
  std::vector<std::string> names;
  for (const ModelEntry* model : missing.models) names.push_back(model->name);
  return names;
}

std::vector<std::string> weight_names(const Missing& missing) {
  std::vector<std::string> names;
  for (const evaluate::MethodFile& file : missing.weights) names.push_back(file.missing);
  return names;
}

std::set<std::string> families(const Missing& missing) {
  std::set<std::string> names;
  for (const std::string& workload : missing.data) names.insert(workload_family(workload));
  return names;
}

/// State of an item: how much of it is covered, and "runnable here", or its needs.
std::string state(const Read& read) {
  if (read.item->kind == ItemKind::illustration) return "nothing to reproduce";
  if (!read.item->covered()) return "not yet: " + read.item->missing;
  const std::string parts = read.item->parts.text();
  const std::string some = parts.empty() ? "" : parts + ", ";
  if (read.runnable()) return some + "runnable here";
  std::vector<std::string> needs;
  if (!read.missing.models.empty())
    needs.push_back(fmt::format("the {} {}", read.missing.models.size() == 1 ? "model" : "models",
                                fmt::join(model_names(read.missing), ", ")));
  if (!read.missing.data.empty())
    needs.push_back(fmt::format("the data of {}", fmt::join(families(read.missing), ", ")));
  if (const size_t sets = read.missing.weights.size(); sets > 0)
    needs.push_back(fmt::format("{} {} of methods' weights", sets, sets == 1 ? "set" : "sets"));
  if (read.missing.embedder) needs.emplace_back("the sentence encoder");
  if (read.item->gpu) needs.emplace_back("a GPU for its speed");
  return fmt::format("{}needs {}", some, fmt::join(needs, "; "));
}

std::string shown_path(const fs::path& config) {
  return ("configs" / config.lexically_relative(own_file("configs"))).string();
}

/// The files that a modelled item follows from: configs/modelled/<paper>-<item>*.json.
std::vector<std::string> modelled_inputs(const Read& read) {
  std::vector<std::string> files;
  if (read.item->kind != ItemKind::modelled) return files;
  const std::string stem = read.paper->name + "-" + read.item->item;
  for (const auto& file : fs::directory_iterator(own_file("configs/modelled"))) {
    if (file.path().stem().string().starts_with(stem)) files.push_back(shown_path(file.path()));
  }
  std::ranges::sort(files);
  return files;
}

/// The experiment at a size that says something on two cores: a config of its own, or its own config with the model
/// and data that scripts/setup brings.
std::string scaled_down(const PaperItem& item) {
  const bool own = item.small.empty();
  std::string command =
      own ? fmt::format(
                "kvarena run {} --model {} --limit 4 --set engine.noise_floor=1 --set engine.max_new_tokens=32 --set "
                "engine.max_prompt_tokens=1024",
                shown_path(item.config), kDefaultModel)
          : fmt::format("kvarena run {}", shown_path(item.small));
  for (const std::string& change : own ? item.scaled : item.small_scaled) command += " --set " + shell_word(change);
  return command;
}

/// The experiment with every model on a CUDA device, whose own bus takes the place of an emulated link.
std::string on_a_gpu(const Read& read) {
  std::string command = fmt::format("kvarena run {}", shown_path(read.item->config));
  for (const ModelEntry& model : read.config->models)
    command += fmt::format(" --set models.{}.device=cuda", model.label);
  return read.config->engine.host_link == "real" ? command : command + " --set engine.host_link=real";
}

json item_json(const Read& read) {
  json value{
      {"item", read.name()},
      {"title", read.item->title},
      {"kind", experiment::to_string(read.item->kind)},
      {"covered", read.item->covered()},
      {"parts", {{"covered", read.item->covered() ? read.item->parts.covered : 0}, {"all", read.item->parts.all}}},
      {"runnable", read.runnable()},
      {"state", state(read)},
      {"needs",
       {{"models", model_names(read.missing)},
        {"data", read.missing.data},
        {"weights", weight_names(read.missing)},
        {"sentence_encoder", read.missing.embedder},
        {"judged_metrics", read.missing.judged},
        {"gpu", read.item->gpu}}},
      {"notes", read.item->notes},
      {"scaled", read.item->scaled}};
  if (read.config) {
    value["config"] = shown_path(read.item->config);
    value["published"] = read.config->published.size();
    value["timed"] = read.config->timing.has_value() || read.config->serving.has_value();
    value["commands"] = {{"cpu", fmt::format("kvarena run {}", shown_path(read.item->config))},
                         {"gpu", on_a_gpu(read)},
                         {"two_cores", scaled_down(*read.item)}};
  }
  if (!read.item->command.empty()) value["command"] = read.item->command;
  if (const auto inputs = modelled_inputs(read); !inputs.empty()) value["inputs"] = inputs;
  return value;
}

/// Numbers of items, in all and of each sort, and of the parts of those that are no illustration.
struct Count {
  int64_t items = 0, covered = 0, runnable = 0, illustrations = 0, not_yet = 0, parts = 0, covered_parts = 0;

  explicit Count(const std::vector<Read>& all) : items(static_cast<int64_t>(all.size())) {
    for (const Read& read : all) {
      covered += read.item->covered() ? 1 : 0;
      runnable += read.runnable() ? 1 : 0;
      if (read.item->covered()) covered_parts += read.item->parts.covered;
      if (read.item->kind == ItemKind::illustration) {
        ++illustrations;
      } else {
        parts += read.item->parts.all;
      }
    }
    not_yet = items - covered - illustrations;
  }
};

void print_list(const std::vector<Read>& all) {
  const Paper* paper = nullptr;
  std::vector<std::vector<std::string>> rows;
  const auto flush = [&] {
    if (paper != nullptr) print(Page().columns(rows).text("\n"));
    rows.clear();
  };
  for (const Read& read : all) {
    if (read.paper != paper) {
      flush();
      paper = read.paper;
      print(Page().bold(paper->name).text(fmt::format("  {}, {}\n", paper->title, paper->source)));
    }
    rows.push_back({read.item->item, fmt::format("{}; {}", read.item->title, state(read))});
  }
  flush();
  const Count count(all);
  fmt::print(
      stderr,
      "{} tables and figures: {} can be asked for ({} of them on this machine), {} are illustrations, {} are not there "
      "yet. Where an item is covered in part its parts are counted: {} of {} are covered.\n`kvarena papers PAPER/ITEM` "
      "says what one needs and how to run it.\n",
      count.items, count.covered, count.runnable, count.illustrations, count.not_yet, count.covered_parts, count.parts);
}

void describe_item(const Read& read, const PresentFiles& here) {
  print(Page().bold(read.name()).text(fmt::format("  {}\n{}\n\n", read.paper->source, read.item->title)));
  std::vector<std::pair<std::string, std::string>> facts = {
      {"state", state(read)},
      {"printed by", read.item->command},
      {"inputs", fmt::format("{}", fmt::join(modelled_inputs(read), ", "))}};
  if (read.config) {
    const auto labels = [](const auto& entries) {
      std::vector<std::string> names;
      for (const auto& entry : entries) names.push_back(entry.label);
      return fmt::format("{}", fmt::join(names, ", "));
    };
    facts.emplace_back("models", labels(read.config->models));
    facts.emplace_back("workloads", labels(read.config->workloads));
    facts.emplace_back("methods", labels(read.config->methods));
    if (const size_t values = read.config->published.size(); values > 0)
      facts.emplace_back("published", fmt::format("{} values", values));
    facts.emplace_back("in full", fmt::format("kvarena run {}", shown_path(read.item->config)));
    facts.emplace_back("on a GPU", on_a_gpu(read));
    facts.emplace_back("on two cores", scaled_down(*read.item));
    facts.emplace_back("what it takes", "each of these with --dry-run says the time and memory on this machine");
  }
  print(Page().columns(fact_rows(facts)));
  if (read.config) {
    const Rows list = fact_rows(shopping_list(*read.config, read.missing, here.home()));
    if (!list.empty()) print(Page().text("\n").bold("Get").text("\n").columns(list));
  }
  if (!read.missing.models.empty())
    print(
        Page()
            .text("\n")
            .wrapped(
                "`hf` comes with huggingface_hub; some models ask for consent on their page, and for `hf auth login`.")
            .text("\n"));
  if (!read.item->notes.empty()) print(Page().text("\n").bold("How it is read").text("\n"));
  for (const std::string& note : read.item->notes) print(Page().text("  - ").wrapped(note, 4, 4).text("\n"));
}

/// The items asked for: all, those of a paper, or one.
std::vector<Read> select(const std::vector<Paper>& papers, const std::optional<std::string>& wanted,
                         const PresentFiles& here) {
  std::vector<Read> chosen;
  std::vector<std::string> names;
  for (const Paper& paper : papers) {
    names.push_back(paper.name);
    for (const PaperItem& item : paper.items) {
      names.push_back(paper.name + "/" + item.item);
      if (!wanted || *wanted == paper.name || *wanted == names.back()) chosen.push_back(read_item(paper, item, here));
    }
  }
  if (chosen.empty()) {
    fail({.place = "papers",
          .found = fmt::format("\"{}\"", wanted.value_or("")),
          .expected = "a paper or one of its items",
          .nearest = nearest_name(wanted.value_or(""), names),
          .action = "`kvarena papers` lists them"});
  }
  return chosen;
}

int run(const Options& options) {
  const std::vector<Paper> papers = experiment::read_papers(own_file("configs/papers"));
  const PresentFiles here(options.data_dir);
  const std::vector<Read> chosen = select(papers, options.item, here);
  if (options.json) {
    json items = json::array();
    for (const Read& read : chosen) items.push_back(item_json(read));
    const Count count(chosen);
    print(fmt::format("{}\n", json{{"items", items},
                                   {"count",
                                    {{"items", count.items},
                                     {"reproducible", count.items - count.illustrations},
                                     {"covered", count.covered},
                                     {"runnable", count.runnable},
                                     {"parts", count.parts},
                                     {"covered_parts", count.covered_parts},
                                     {"illustrations", count.illustrations},
                                     {"not_yet", count.not_yet}}}}
                                  .dump(2)));
  } else if (options.item && options.item->find('/') != std::string::npos) {
    describe_item(chosen.front(), here);
  } else {
    print_list(chosen);
  }
  return 0;
}

}  // namespace

Command papers_command() {
  return make_command<Options>(
      {.name = "papers",
       .summary = "list the tables and figures of the papers, or say what reproducing one needs",
       .examples = {{"kvarena papers", "all, with what each needs"},
                    {"kvarena papers PAPER/ITEM", "one: models, data, methods, how to run it"},
                    {"kvarena papers --json", "the same for a script, with counts"}}},
      run);
}

}  // namespace kvarena::cli
