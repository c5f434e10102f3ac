#include "harness/method/python/plugin.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "harness/method/python/budget_rule.h"
#include "harness/method/python/codec.h"
#include "harness/method/python/retriever.h"
#include "harness/method/python/scorer.h"
#include "harness/method/registration.h"

namespace kvarena {

using nlohmann::json;

namespace {

std::unique_ptr<Method> method_of(const std::shared_ptr<PythonChild>& child, const json& description) {
  const auto name = description.at("name").get<std::string>();
  const auto kind = description.at("kind").get<std::string>();
  PythonPart part(child, description);
  if (kind == "codec") return std::make_unique<CodecMethod>(name, std::make_unique<PythonCodec>(std::move(part)));
  if (kind == "retriever") {
    return std::make_unique<RetrievalMethod>(
        std::make_unique<PythonRetriever>(std::move(part), name, description.at("dense_layers").get<int64_t>()));
  }
  return std::make_unique<DroppingMethod>(name, std::make_unique<PythonScorer>(std::move(part)));
}

void register_method(const std::filesystem::path& path, const std::shared_ptr<PythonChild>& child,
                     const json& description) {
  const MethodInfo info{.name = description.at("name").get<std::string>(),
                        .title = description.at("title").get<std::string>(),
                        .summary = description.at("summary").get<std::string>(),
                        .paper = description.at("paper").get<std::string>()};
  detail::require_free(path, info.name, detail::registered_methods());
  const bool retrieves = description.at("kind").get<std::string>() == "retriever";
  (void)detail::RegisterMethod({.info = info,
                                .family = retrieves ? Family::retrieval : Family::compression,
                                .create = [child, description] { return method_of(child, description); }});
}

void register_rule(const std::filesystem::path& path, const std::shared_ptr<PythonChild>& child,
                   const json& description) {
  detail::add_budget_rule(path, {.name = description.at("name").get<std::string>(),
                                 .summary = description.at("summary").get<std::string>(),
                                 .create = [child, description] {
                                   return std::make_unique<PythonBudgetRule>(PythonPart(child, description));
                                 }});
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
  for (const json& description : said.at("methods")) {
    const bool divides = description.at("kind").get<std::string>() == "budgetrule";
    (divides ? register_rule : register_method)(path, child, description);
    plugin.methods.push_back(description.at("name").get<std::string>());
  }
  return plugin;
}

}  // namespace kvarena
