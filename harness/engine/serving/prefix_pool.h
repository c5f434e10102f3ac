#pragma once
// Pools of devices that stored prompts' caches come to: room for requests, the link from the store to each device, and
// what of both is reserved. Yao et al. 2026, arXiv:2605.17613, section 5.3.

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "harness/cost_model/resource_rings.h"
#include "harness/engine/serving/admission.h"
#include "harness/storage/link.h"

namespace kvarena {

struct PrefixPool {
  storage::LinkSpec link;  // of each device, from the store
  /// Copies a stored block whole, on the link's thread; empty: from where it lies.
  std::function<void(const storage::Block&, std::span<std::byte>)> read;
  double bytes_per_s = 0;  // that the rings count on where the link emulates nothing; 0: it takes no time
  int64_t devices = 1;
  int64_t requests = std::numeric_limits<int64_t>::max();  // that a device has room for
  storage::LinkFault fault;                                // for tests
};

/// One device. Its rings count link time, and memory in places for requests.
class PrefixDevice {
 public:
  explicit PrefixDevice(const PrefixPool& settings);

  [[nodiscard]] storage::Link& link() { return link_; }
  [[nodiscard]] const storage::Link& link() const { return link_; }
  /// Copies a stored block whole.
  void read(const storage::Block& block, std::span<std::byte> to) const;
  [[nodiscard]] int64_t requests() const { return admission_.promised(); }
  [[nodiscard]] bool has_place() const { return admission_.fits({.own = 1}); }
  [[nodiscard]] serving::Admission::Place take() { return admission_.admit({.own = 1}); }

  /// Reserves the link for a load whose request has its place; returns the iterations until it begins, nothing when
  /// there is no time for it yet.
  [[nodiscard]] std::optional<int64_t> place_load(int64_t bytes, double iteration_seconds);
  /// Reserves the link and a place for a load that a verification waits for once `drafts` more passes have gone by.
  [[nodiscard]] std::optional<cost_model::Placement> place_reload(int64_t bytes, double iteration_seconds,
                                                                  int64_t drafts);
  /// The place of a reload that begins now, of which so many iterations are reserved.
  [[nodiscard]] serving::Admission::Place take_reserved(int64_t iterations);
  /// An iteration has gone by.
  void advance();

 private:
  [[nodiscard]] cost_model::ReloadRequest request(int64_t bytes, double iteration_seconds, int64_t drafts) const;

  std::function<void(const storage::Block&, std::span<std::byte>)> read_;
  double bytes_per_s_;  // 0: a load takes no time
  serving::Admission admission_;
  storage::Link link_;
  cost_model::ResourceRings rings_;
  std::vector<int64_t> reserved_;  // iterations left of reloads that took their places
};

/// The devices of one pool.
class PrefixDevices {
 public:
  explicit PrefixDevices(const PrefixPool& settings);

  [[nodiscard]] PrefixDevice& emptiest();
  [[nodiscard]] storage::LinkTotals totals() const;
  void advance();

 private:
  std::deque<PrefixDevice> devices_;  // stay where they are
};

}  // namespace kvarena
