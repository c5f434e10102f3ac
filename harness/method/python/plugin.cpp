#include "harness/method/python/plugin.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "harness/method/python/scorer.h"
#include "harness/method/registration.h"

namespace kvarena {

using nlohmann::json;

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
    detail::require_free(path, info.name, detail::registered_methods());
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
