#pragma once
// The disk tier: real files, read and written where they lie.

#include <atomic>
#include <filesystem>

#include "harness/storage/storage.h"

namespace kvarena::storage {

enum class DiskAccess {
  buffered,  // through the operating system's page cache
  direct,    // past it (O_DIRECT): what the disk itself takes
};

/// One file a block, its room reserved when it is made, removed when the block dies. Errors name the file and what the
/// system said.
class DiskStorage final : public Storage {
 public:
  /// Makes the folder. Throws UserError when it cannot.
  DiskStorage(std::filesystem::path folder, int64_t capacity, DiskAccess access);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 protected:
  [[nodiscard]] std::shared_ptr<Block> make_block(const LedgerPtr& ledger, int64_t bytes) override;

 private:
  std::filesystem::path folder_;
  DiskAccess access_;
  std::atomic<int64_t> made_{0};
};

}  // namespace kvarena::storage
