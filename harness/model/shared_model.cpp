#include "harness/model/shared_model.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <string>

#include "harness/model/open_model.h"

namespace kvarena {

std::shared_ptr<SharedModel> shared_model(const std::filesystem::path& path, const TransformerOptions& options) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<SharedModel>> alive;
  const std::lock_guard lock(mutex);
  std::weak_ptr<SharedModel>& known =
      alive[fmt::format("{} {} {}", std::filesystem::canonical(path).string(), static_cast<int>(options.weights),
                        static_cast<int>(options.cache))];
  std::shared_ptr<SharedModel> model = known.lock();
  if (!model) {
    OpenedModel opened = open_model(path);
    model = std::make_shared<SharedModel>(Transformer(opened.config, *opened.checkpoint, options),
                                          std::move(opened.tokenizer));
    known = model;
  }
  return model;
}

}  // namespace kvarena
