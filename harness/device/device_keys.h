#pragma once
// Keys on a device that are searched before its passes.

#include <memory>
#include <mutex>
#include <vector>

#include "harness/cache/searched_keys.h"
#include "harness/device/device_mirrors.h"
#include "kernels/cells/cells.h"

namespace kvarena::device {

/// A device's stream beside its passes, on which all requests' searches take turns, and memory for one of them.
struct KeySearcher {
  KeySearcher(std::shared_ptr<DeviceMirrors> own_mirrors, int64_t own_device)
      : mirrors(std::move(own_mirrors)), device(own_device) {}

  std::shared_ptr<DeviceMirrors> mirrors;  // of caches on the device, which leave the keys room
  int64_t device;
  std::mutex turn;  // of what follows
  kernels::CudaQueue queue;
  kernels::CudaScratch scratch;
  kernels::CudaBuffer rows;    // keys or queries that came
  kernels::CudaBuffer scores;  // [q_heads, tokens]
  kernels::CudaBuffer lists;   // [lists, count], then how many each has, or -1 [lists]
};

/// One request's. Lists have the bits of the host's, on those of its instruction sets that agree. Throws UserError when
/// the device refuses.
class DeviceKeys final : public SearchedKeys {
 public:
  DeviceKeys(std::shared_ptr<KeySearcher> searcher, int64_t kv_heads, int64_t head_dim, LedgerPtr ledger);

  void append(std::span<const float> rows) override;
  [[nodiscard]] std::vector<std::vector<int32_t>> search(const KeySearch& what) const override;
  [[nodiscard]] int64_t count() const override { return count_; }
  [[nodiscard]] int64_t bytes() const override;
  [[nodiscard]] std::unique_ptr<SearchedKeys> clone(const LedgerPtr& ledger) const override;

 private:
  /// Memory of the device that its mirrors leave free and a ledger counts.
  class Memory {
   public:
    Memory(const KeySearcher& searcher, LedgerPtr ledger, int64_t bytes)
        : room_(searcher.mirrors, searcher.device, bytes), memory_(bytes), ledger_(std::move(ledger)) {
      ledger_->add(Tier::device, bytes);
    }
    ~Memory() { ledger_->add(Tier::device, -bytes()); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    [[nodiscard]] void* data() const { return memory_.data(); }
    [[nodiscard]] int64_t bytes() const { return memory_.bytes(); }

   private:
    LentRoom room_;
    kernels::CudaBuffer memory_;
    LedgerPtr ledger_;
  };

  [[nodiscard]] kernels::Cells cells(int64_t kv_head) const;
  /// Makes room for so many tokens; where there was some, for twice as many as are there.
  void reserve(int64_t tokens);

  std::shared_ptr<KeySearcher> searcher_;
  int64_t head_dim_;
  LedgerPtr ledger_;
  std::vector<std::unique_ptr<Memory>> heads_;  // [kv_heads]
  int64_t count_ = 0;
};

}  // namespace kvarena::device
