#include "harness/serve/served_models.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/engine/serving/scheduled_decoding.h"
#include "harness/method/reuser.h"
#include "harness/method/verifier.h"
#include "harness/serve/api_error.h"

namespace kvarena::serve {

ServedModels::ServedModels(std::string name, int64_t reuse_bytes) : reuse_bytes_(reuse_bytes) {
  models_.push_back(
      {.name = std::move(name), .method_json = "", .method = std::make_unique<Method>(), .memory = nullptr});
}

void ServedModels::add(const std::string& written, std::string method_json, std::unique_ptr<const Method> method) {
  const std::string name = fmt::format("{}@{}", models_.front().name, written);
  const std::string place = fmt::format("--method {}", written);
  if (std::ranges::find(models_, name, &ServedModel::name) != models_.end()) {
    fail({.place = place, .found = "a second time", .expected = "each method once"});
  }
  if (has_schedule(*method)) {
    fail({.place = place,
          .found = "a verification schedule",
          .expected = "a method whose requests need not be known from the beginning",
          .action = "serve it with \"schedule\": \"resident\""});
  }
  if (method->placement() != nullptr) {
    fail({.place = place,
          .found = "a policy that places many contexts",
          .expected = "a method that acts on one request's cache"});
  }
  std::shared_ptr<ReuseMemory> memory;
  if (method->reuser() != nullptr) {
    memory = std::make_shared<ReuseMemory>(ReuseMemory{.chunks = std::make_shared<MemoryChunkStore>(reuse_bytes_),
                                                       .prefixes = std::make_shared<PrefixTrees>(reuse_bytes_)});
  }
  models_.push_back(
      {.name = name, .method_json = std::move(method_json), .method = std::move(method), .memory = std::move(memory)});
}

void ServedModels::open_helpers(Transformer& model, const std::string& file) const {
  for (const ServedModel& served : models_) {
    std::string path;
    if (const Reuser* reuser = served.method->reuser()) {
      if (const auto speculative = reuser->speculative()) path = speculative->path;
    } else if (const Verifier* verifier = served.method->verifier()) {
      const Drafter drafter = verifier->drafter();
      if (const auto* other = std::get_if<OtherCheckpoint>(&drafter)) path = other->path;
    }
    if (!path.empty()) (void)model.helper(path);
    for (const std::string& adapter : served.method->needs().restorations) (void)model.helper(adapter, file);
  }
}

const ServedModel& ServedModels::find(const std::string& name) const {
  const auto found = std::ranges::find(models_, name, &ServedModel::name);
  if (found != models_.end()) return *found;
  std::vector<std::string> names;
  for (const ServedModel& model : models_) names.push_back(model.name);
  throw ApiError(404,
                 describe({.place = "model",
                           .found = fmt::format("\"{}\"", name),
                           .expected = "one of GET /v1/models",
                           .nearest = nearest_name(name, names)}),
                 "model");
}

}  // namespace kvarena::serve
