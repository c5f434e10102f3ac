#pragma once
// A disk under SQLite that stops working at a chosen moment.

#include <cstdint>

namespace kvarena::results {

enum class DiskFailure {
  full,   // writes fail: no space
  write,  // writes fail: I/O error
  sync,   // flushes fail
  torn,   // half of a write arrives, then writes fail
};

/// While this object lives, databases opened by name lie on a disk whose operations of the kind that `failure` names
/// are counted; from operation `first` on they fail, until repair(). One at a time.
class FailingDisk {
 public:
  FailingDisk(DiskFailure failure, int64_t first);
  ~FailingDisk();
  FailingDisk(const FailingDisk&) = delete;
  FailingDisk& operator=(const FailingDisk&) = delete;

  void repair();
  /// Operations of the kind so far.
  [[nodiscard]] int64_t operations() const;
};

}  // namespace kvarena::results
