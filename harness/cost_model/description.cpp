#include "harness/cost_model/description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/cost_model/hardware.h"

namespace kvarena::cost_model {

nlohmann::json parse_object(const std::string& text, const std::string& place) {
  nlohmann::json whole = parse_json(text, place);
  if (!whole.is_object()) fail({.place = place, .found = brief(whole), .expected = "an object"});
  return whole;
}

void throw_problems(const std::vector<std::string>& problems) {
  if (!problems.empty()) throw UserError(fmt::format("{}", fmt::join(problems, "\n")));
}

std::vector<std::string> description_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::filesystem::path find_description(const std::string& name, const std::filesystem::path& folder) {
  if (name.find('/') != std::string::npos || name.ends_with(".json")) return name;
  std::filesystem::path file = folder / (name + ".json");
  if (std::filesystem::exists(file)) return file;
  const std::vector<std::string> names = description_names(folder);
  fail({.place = folder.string(),
        .found = fmt::format("no \"{}.json\"", name),
        .expected = fmt::format("one of: {}", fmt::join(names, ", ")),
        .nearest = nearest_name(name, names),
        .action = "a path to a file of one's own is taken too"});
}

}  // namespace kvarena::cost_model
