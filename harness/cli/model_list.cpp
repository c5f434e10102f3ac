// kvarena model list: models of this machine.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/core/error.h"
#include "harness/core/home.h"
#include "harness/core/json_text.h"
#include "harness/core/own_files.h"
#include "harness/core/page.h"
#include "harness/core/terminal.h"
#include "harness/model/config.h"
#include "harness/model/gguf.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;
using Path = std::filesystem::path;

struct Options {
  bool as_json = false;

  void declare(OptionSet& o) { o.flag("json", as_json).help("for programs"); }
};

struct Listed {
  FoundModel found;
  std::string family;   // empty where it cannot be used
  std::string problem;  // and why
  int64_t bytes = 0;
};

/// The file that describes a model: config.json, or a GGUF file.
Path description_of(const Path& path) {
  if (!std::filesystem::is_directory(path) || std::filesystem::exists(path / "config.json")) return path;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".gguf" && !is_later_part(entry.path())) return entry.path();
  }
  return path;
}

ModelConfig config_of(const Path& path) {
  const Path described = description_of(path);
  if (!std::filesystem::is_directory(described)) return read_gguf_config(GgufFile(described));
  return read_hf_config(described / "config.json");
}

int64_t bytes_of(const Path& path) {
  if (!std::filesystem::is_directory(path)) return static_cast<int64_t>(std::filesystem::file_size(path));
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

Listed listed(const FoundModel& found) {
  Listed row{.found = found};
  try {
    row.bytes = bytes_of(found.path);
    row.family = config_of(found.path).architecture;
  } catch (const std::exception& error) {  // also of files that go meanwhile
    row.problem = error.what();
  }
  return row;
}

int run(const Options& options) {
  json list = json::array();
  std::vector<std::vector<std::string>> rows;
  for (const FoundModel& found : found_models()) {
    const Listed row = listed(found);
    list.push_back({{"name", found.name},
                    {"place", found.place},
                    {"path", found.path.string()},
                    {"bytes", row.bytes},
                    {"family", row.family},
                    {"problem", row.problem}});
    rows.push_back({found.name, found.place, bytes_text(row.bytes), row.family.empty() ? row.problem : row.family});
  }
  if (options.as_json) {
    print(json_text(list, 2) + "\n");
  } else if (rows.empty()) {
    print(fmt::format("no model; {} brings the default one\n", setup_command()));
  } else {
    print(Page().columns(rows));
  }
  return 0;
}

}  // namespace

Command model_list_command() {
  return make_command<Options>(
      {.name = "list",
       .summary = "models of this machine: KVARENA_HOME, the caches of Hugging Face, llama.cpp and Ollama",
       .examples = {{"kvarena model list", "names as --model takes them, with size and family"}}},
      run);
}

}  // namespace kvarena::cli
