#pragma once
// Uncompressed caches of contexts on the disk, which stands for a last tier without a limit: what forms are made of.

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/storage/context_folder.h"

namespace kvarena::stored {

/// Gives an uncompressed prompt with what was observed of it.
using Original = std::function<std::shared_ptr<const Prefill>()>;

/// Keeps what methods asked to observe in memory and caches as files. Thread-safe but for add().
class Originals {
 public:
  /// Throws UserError as ContextFolder does. The model must outlive it.
  Originals(const Transformer& model, std::filesystem::path folder) : model_(&model), folder_(std::move(folder)) {}

  /// Takes a prompt's cache to the disk; returns the prompt's number, from 0 on.
  size_t add(Prefill prompt);
  /// The prompt as it was, bit for bit, read from the disk. Throws UserError when the file is damaged or gone.
  [[nodiscard]] std::shared_ptr<const Prefill> read(size_t number) const;
  /// Bytes of all caches.
  [[nodiscard]] int64_t bytes() const { return folder_.bytes(); }

 private:
  const Transformer* model_;
  mutable std::mutex mutex_;  // guards folder_
  mutable storage::ContextFolder folder_;
  std::vector<Prefill> prompts_;  // without their caches
};

}  // namespace kvarena::stored
