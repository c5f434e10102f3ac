#include "harness/method/python/plugin.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/method/python/scorer.h"
#include "harness/method/registration.h"

namespace kvarena {
namespace {

using nlohmann::json;

void require_free(const std::filesystem::path& path, const std::string& name) {
  const auto same = [&](const MethodEntry& entry) { return entry.info.name == name; };
  if (std::ranges::none_of(detail::registered_methods(), same)) return;
  fail({.place = path.string(),
        .found = fmt::format("a method \"{}\", a name that is taken", name),
        .expected = "names that no other method has"});
}

}  // namespace

LoadedPlugin load_python_plugin(const std::filesystem::path& path, const std::string& sha256) {
  const auto child = std::make_shared<PythonChild>(path);
  const json said = child->methods();
  LoadedPlugin plugin{.path = path,
                      .name = path.stem().string(),
                      .version = said.at("version").get<std::string>(),
                      .sha256 = sha256,
                      .methods = {}};
  for (const json& method : said.at("methods")) {
    const MethodInfo info{.name = method.at("name").get<std::string>(),
                          .title = method.at("title").get<std::string>(),
                          .summary = method.at("summary").get<std::string>(),
                          .paper = method.at("paper").get<std::string>()};
    require_free(path, info.name);
    (void)detail::RegisterMethod(
        {.info = info, .family = Family::compression, .create = [child, method]() -> std::unique_ptr<Method> {
           return std::make_unique<DroppingMethod>(method.at("name").get<std::string>(),
                                                   std::make_unique<PythonScorer>(child, method));
         }});
    plugin.methods.push_back(info.name);
  }
  return plugin;
}

}  // namespace kvarena
