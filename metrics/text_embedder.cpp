#include "metrics/text_embedder.h"

#include <mutex>

#include "harness/core/error.h"

namespace kvarena::metrics {
namespace {

struct Slot {
  std::mutex mutex;
  std::function<std::unique_ptr<TextEmbedder>()> make;
  std::vector<std::filesystem::path> files;
  std::unique_ptr<TextEmbedder> embedder;
};

Slot& slot() {
  static Slot instance;
  return instance;
}

}  // namespace

void provide_text_embedder(std::function<std::unique_ptr<TextEmbedder>()> make,
                           std::vector<std::filesystem::path> files) {
  Slot& here = slot();
  const std::scoped_lock lock(here.mutex);
  here.make = std::move(make);
  here.files = std::move(files);
  here.embedder.reset();
}

std::vector<std::filesystem::path> text_embedder_files() {
  Slot& here = slot();
  const std::scoped_lock lock(here.mutex);
  return here.files;
}

const TextEmbedder& text_embedder() {
  Slot& here = slot();
  const std::scoped_lock lock(here.mutex);
  if (!here.embedder) {
    if (!here.make)
      fail({.place = "embeddings", .found = "no encoder", .expected = "a sentence encoder to embed with"});
    here.embedder = here.make();
  }
  return *here.embedder;
}

}  // namespace kvarena::metrics
