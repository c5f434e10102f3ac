#pragma once
// Contexts of a workload that all points of a sweep ask about: their caches, and what forms of these are worth.

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "harness/engine/stored/originals.h"
#include "harness/engine/stored/profile_run.h"
#include "harness/evaluate/stored_contexts.h"

namespace kvarena::evaluate {

/// A new folder, removed by the destructor.
class ScratchFolder {
 public:
  /// Throws UserError when `parent` takes none.
  explicit ScratchFolder(const std::filesystem::path& parent);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct StoredSet {
  explicit StoredSet(const std::filesystem::path& parent) : folder(parent) {}

  ScratchFolder folder;                              // of the originals, and of a disk tier
  bool ready = false;                                // the device holds ready caches
  std::vector<stored::CacheForm> forms;              // that policies choose among
  std::unique_ptr<stored::Originals> originals;      // by context
  std::vector<std::vector<storage::Form>> profiles;  // by context, of `forms`; empty where nobody chooses
  std::vector<int64_t> full_bytes;                   // by context, uncompressed and stored
  double disk_bytes_per_s = 0;                       // of the disk tier: as given, or as measured
};

/// Prefills every context of the task once with the needs of all methods, and profiles it where one chooses among
/// forms. The model must outlive the result. Throws UserError when a form's method cannot act on a context.
[[nodiscard]] std::shared_ptr<StoredSet> read_stored_set(Transformer& model, const StoredContextsTask& task,
                                                         std::span<const EvaluatedMethod> methods);

/// Whether a policy chooses among forms, instead of leaving contexts as they come.
[[nodiscard]] bool chooses(const Method& method);
/// The division of contexts into chunks by a method that places them; null where it stores them whole.
[[nodiscard]] const Chunking* chunking_of(const Method& method);
/// Forms that a method stores contexts in.
[[nodiscard]] std::vector<stored::CacheForm> forms_of(const Method& method, const StoredSet& set);
/// Begins to profile the set's forms of a context by its answers to `asked`. Task and set must outlive it.
[[nodiscard]] std::unique_ptr<stored::ProfileRun> start_profile(Transformer& model, const StoredContextsTask& task,
                                                                const StoredSet& set, size_t context,
                                                                std::shared_ptr<const Prefill> original,
                                                                std::span<const Request* const> asked);

}  // namespace kvarena::evaluate
