#pragma once
// The papers that kvarena reproduces: one folder each under configs/papers, with paper.json, which lists every table
// and figure in the paper's order, and one config for each of those that are evaluated.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kvarena::experiment {

/// Kinds of items of a paper, by how their numbers are made.
enum class ItemKind {
  measured,      // an experiment: <item>.json beside paper.json
  modelled,      // computed from described hardware: `command` prints it
  illustration,  // a diagram or a list of notation: nothing to reproduce
};
[[nodiscard]] const char* to_string(ItemKind kind);

/// How much of an item its config or command reaches: 2 of 5 columns.
struct ItemParts {
  int64_t covered = 1;
  int64_t all = 1;
  std::string of;  // "columns"; empty for an item that is covered as a whole

  /// "2 of 5 columns", or nothing.
  [[nodiscard]] std::string text() const;
};

/// A table or figure.
struct PaperItem {
  std::string item;   // "table1", "figure2-left"
  std::string title;  // what it shows
  ItemKind kind = ItemKind::measured;
  std::filesystem::path config;    // measured: the file; empty while there is none
  std::string command;             // modelled: what prints it
  std::string missing;             // why there is neither config nor command yet
  std::vector<std::string> notes;  // points that the paper leaves open, and the reading here; the paper's notes first
  std::filesystem::path small;  // measured: a config that shows it on two cores, with the default model; may be empty
  std::vector<std::string> small_scaled;  // settings changed in `small`: "KEY=VALUE"
  std::vector<std::string> scaled;        // settings changed for the default model beside model and limit: "KEY=VALUE"
  bool gpu = false;                       // the paper's speed figures need one
  ItemParts parts;                        // what `covered()` says is covered of it

  /// Whether the program can reproduce it.
  [[nodiscard]] bool covered() const { return !config.empty() || !command.empty(); }
};

struct Paper {
  std::string name;    // the folder's: "specache"
  std::string title;   // "SpeCache: ..."
  std::string source;  // "arXiv:2503.16163"
  std::vector<PaperItem> items;
};

/// The item whose config `config` is, of any paper in `folder`; nothing for another file.
[[nodiscard]] std::optional<PaperItem> find_item(const std::filesystem::path& folder,
                                                 const std::filesystem::path& config);

/// All folders with a paper.json, by name. Throws UserError with every problem of a file: unknown keys, an item twice,
/// a measured item without its config and without a reason, parts that are no part, a config that no item names.
[[nodiscard]] std::vector<Paper> read_papers(const std::filesystem::path& folder);

}  // namespace kvarena::experiment
