#include "harness/engine/stored/originals.h"

#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/engine/stored/stored_cache.h"

namespace kvarena::stored {

size_t Originals::add(Prefill prompt) {
  const size_t number = prompts_.size();
  folder_.put(fmt::format("{}", number), store_cache(prompt, nullptr));
  prompt.cache = model_->make_cache();
  prompts_.push_back(std::move(prompt));
  return number;
}

std::shared_ptr<const Prefill> Originals::read(size_t number) const {
  const Prefill& kept = prompts_[number];
  std::shared_ptr<const storage::StoredObject> object;
  {
    const std::lock_guard lock(mutex_);
    object = folder_.open(fmt::format("{}", number));
  }
  if (object == nullptr || !object->whole()) {
    fail({.place = folder_.path().string(),
          .found = fmt::format("uncompressed cache {} {}", number, object == nullptr ? "gone" : "damaged"),
          .expected = "the file that this run wrote",
          .action = "leave the folder alone while it runs, and run again"});
  }
  return std::make_shared<const Prefill>(Prefill{.tokens = kept.tokens,
                                                 .cache = restore_cache(*model_, *kept.model, nullptr, object->bytes()),
                                                 .logits = kept.logits,
                                                 .observations = kept.observations,
                                                 .model = kept.model});
}

}  // namespace kvarena::stored
