#pragma once
// Inside the experiment folder: the parts of a config, each read on its own, all problems into one list.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/experiment/config.h"

namespace kvarena::experiment {

inline constexpr std::string_view kHub = "huggingface.co/";  // and org/name: a model's source

/// Collects the problems of one file.
class Problems {
 public:
  explicit Problems(std::string place) : place_(std::move(place)) {}

  /// The place of a key in messages: "configs/x.json: methods[0]".
  [[nodiscard]] std::string at(const std::string& key) const { return place_ + ": " + key; }
  void add(const std::string& key, const std::string& found, const std::string& expected,
           const std::string& nearest = "", const std::string& action = "");
  /// Finished messages; one that is there already (from another combination of a matrix) is not repeated.
  void append(const std::vector<std::string>& messages);
  /// Throws UserError with one problem a line.
  void throw_if_any() const;

 private:
  std::string place_;
  std::vector<std::string> messages_;
};

enum class ComponentKind { workloads, methods, metrics, forms };

/// Entries are names of files in `models_folder`, paths of checkpoints, names on the hub, or objects with a name.
[[nodiscard]] std::vector<ModelEntry> read_models(const nlohmann::json& list,
                                                  const std::filesystem::path& models_folder, Problems& problems);
[[nodiscard]] std::vector<ComponentEntry> read_components(const nlohmann::json& list, ComponentKind kind,
                                                          const Validator& validator, Problems& problems);
/// [prompt, answer], as a config writes it.
[[nodiscard]] nlohmann::json request_tokens_json(const RequestTokens& tokens);
/// The group "contexts" with its "forms".
[[nodiscard]] ContextSettings read_contexts(const nlohmann::json& value, const Validators& validators,
                                            Problems& problems);
/// JSON of the context settings that decide results.
[[nodiscard]] std::string contexts_json(const ContextSettings& contexts);
[[nodiscard]] TableShape read_table(const nlohmann::json& value, Problems& problems);
[[nodiscard]] std::string table_json(const TableShape& table);
/// Words for what of a metric's values a published one is.
[[nodiscard]] std::vector<std::string> statistic_names();
[[nodiscard]] std::vector<results::PublishedValue> read_published(const nlohmann::json& list, Problems& problems);

/// Warnings for published values whose method, workload or metric the config does not have.
[[nodiscard]] std::vector<std::string> unmatched_published(const ExperimentConfig& config, const std::string& place);

}  // namespace kvarena::experiment
