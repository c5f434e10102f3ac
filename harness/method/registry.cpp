#include "harness/method/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/method/registration.h"

namespace kvarena {
namespace {

using nlohmann::json;

/// Filled by registration lines before main; sorted and checked at first use.
std::vector<MethodEntry>& collected() {
  static std::vector<MethodEntry> entries;
  return entries;
}

bool sorted = false;

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const MethodEntry& entry : method_registry()) list.push_back(entry.info.name);
  return list;
}

}  // namespace

std::unique_ptr<Method> Method::build(const json& spec, const std::string& place, std::vector<std::string>& problems) {
  if (!spec.is_object() || !spec.contains("name") || !spec["name"].is_string()) {
    problems.push_back(describe({.place = place, .found = spec.dump(), .expected = "an object with a \"name\""}));
    return nullptr;
  }
  const auto name = spec["name"].get<std::string>();
  const MethodEntry* entry = find_method(name);
  if (entry == nullptr) {
    problems.push_back(describe({.place = place + ".name",
                                 .found = fmt::format("\"{}\"", name),
                                 .expected = "a registered method",
                                 .nearest = nearest_name(name, names()),
                                 .action = "`kvarena methods` lists all"}));
    return nullptr;
  }
  auto method = entry->create();
  const auto found = read_parameters(spec, place, [&](ParameterVisitor& p) { method->settings(p); });
  problems.insert(problems.end(), found.begin(), found.end());
  if (!found.empty()) return method;
  method->check(place, problems);
  method->layers().check(place, problems);
  const bool attends_to_less = entry->family == Family::retrieval || entry->family == Family::prefill;
  if (attends_to_less && method->layers().only_sliding()) {
    problems.push_back(describe({.place = place + ".layers",
                                 .found = "\"sliding\" for a method that attends to some of the entries",
                                 .expected = "layers that see everything: those with a window attend to few entries",
                                 .action = "leave \"layers\" out"}));
  }
  return method;
}

namespace detail {

RegisterMethod::RegisterMethod(MethodEntry entry) {
  if (entry.family == Family::compression || entry.family == Family::retrieval || entry.family == Family::prefill) {
    entry.create = [plain = std::move(entry.create)] {
      auto method = plain();
      if (method->can_leave_layers_out()) method->choose_layers();
      return method;
    };
  }
  collected().push_back(std::move(entry));
}

std::span<const MethodEntry> registered_methods() {
  KVARENA_ASSERT(!sorted, "methods are registered before the registry is looked at");
  return collected();
}

void require_free(const std::filesystem::path& plugin, const std::string& name, std::span<const MethodEntry> among) {
  const auto same = [&](const MethodEntry& entry) { return entry.info.name == name; };
  if (std::ranges::none_of(among, same)) return;
  fail({.place = plugin.string(),
        .found = fmt::format("a method \"{}\", a name that is taken", name),
        .expected = "names that no other method has"});
}

}  // namespace detail

std::vector<ParameterInfo> MethodEntry::parameters() const {
  const auto method = create();
  return list_parameters([&](ParameterVisitor& p) { method->settings(p); });
}

const std::vector<MethodEntry>& method_registry() {
  static const std::vector<MethodEntry> all = [] {
    sorted = true;
    std::vector<MethodEntry> entries = std::move(collected());
    std::ranges::sort(entries, {}, [](const MethodEntry& entry) { return entry.info.name; });
    const auto repeated = std::ranges::adjacent_find(
        entries, {}, [](const MethodEntry& entry) -> const std::string& { return entry.info.name; });
    KVARENA_ASSERT(repeated == entries.end(), fmt::format("two methods are named \"{}\"", repeated->info.name));
    return entries;
  }();
  return all;
}

const MethodEntry* find_method(const std::string& name) {
  const auto& all = method_registry();
  const auto it =
      std::ranges::find(all, name, [](const MethodEntry& entry) -> const std::string& { return entry.info.name; });
  return it == all.end() ? nullptr : &*it;
}

std::vector<std::string> check_method(const json& spec, const std::string& place) {
  std::vector<std::string> problems;
  (void)Method::build(spec, place, problems);
  return problems;
}

std::unique_ptr<Method> make_method(const json& spec, const std::string& place) {
  std::vector<std::string> problems;
  auto method = Method::build(spec, place, problems);
  if (!problems.empty()) throw UserError(fmt::format("{}", fmt::join(problems, "\n")));
  return method;
}

}  // namespace kvarena
