#pragma once
// A state of a cache to go back to.

#include <memory>
#include <vector>

#include "harness/cache/layer_cache.h"

namespace kvarena {

/// While it lives, a cache holds back what leaves or changes of its present entries (Segment::mark()), so that rewind()
/// can give it back as it is now; entries that join cost nothing. Indexes are copied. States are left to who holds them
/// (KvCache::hold_states()). At most one of a cache at a time; the cache must outlive it, where it is.
class CacheCheckpoint {
 public:
  /// Counts what it holds back and copies in the cache's ledger.
  explicit CacheCheckpoint(KvCache& cache);
  /// Counts them in a ledger of its own: the cache's goes on as if there were no checkpoint.
  CacheCheckpoint(KvCache& cache, LedgerPtr own);
  ~CacheCheckpoint();
  CacheCheckpoint(const CacheCheckpoint&) = delete;
  CacheCheckpoint& operator=(const CacheCheckpoint&) = delete;

  /// Ends its work.
  void rewind();
  /// Bytes of the copied indexes. Those held back are counted by the cache.
  [[nodiscard]] int64_t bytes() const;

 private:
  struct Layer {
    std::vector<Segment*> segments;
    std::unique_ptr<LayerIndex> index;
  };

  KvCache* cache_;  // null after rewind()
  LedgerPtr ledger_;
  int64_t length_;
  std::vector<Layer> layers_;
  std::unique_ptr<LayerIndex> index_;
};

}  // namespace kvarena
