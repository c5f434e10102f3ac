#include "harness/engine/serving/prefix_pool.h"

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {
namespace {

/// Iterations that are looked ahead: over slow links a cache takes many.
constexpr int64_t kWindows = 1024;

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

}  // namespace

PrefixDevice::PrefixDevice(const PrefixPool& settings)
    : read_(settings.read),
      bytes_per_s_(settings.link.emulated() ? settings.link.bytes_per_s : settings.bytes_per_s),
      admission_(settings.requests),
      link_(settings.link, settings.fault),
      rings_({.windows = kWindows, .memory_bytes = static_cast<double>(settings.requests)}) {}

void PrefixDevice::read(const storage::Block& block, std::span<std::byte> to) const {
  if (read_) return read_(block, to);
  block.read(0, to);
}

/// In units of a place.
cost_model::ReloadRequest PrefixDevice::request(int64_t bytes, double iteration_seconds, int64_t drafts) const {
  const double rate = bytes_per_s_ > 0 ? bytes_per_s_ / static_cast<double>(bytes) : kUnlimited;
  return {.bytes = 1,
          .link_bandwidth = rate,
          .iteration_seconds = iteration_seconds,
          .resident_bytes = static_cast<double>(admission_.promised() - std::ssize(reserved_)),
          .draft_length = drafts};
}

std::optional<int64_t> PrefixDevice::place_load(int64_t bytes, double iteration_seconds) {
  const cost_model::ReloadRequest wanted = request(bytes, iteration_seconds, 0);
  if (!rings_.reaches(wanted)) return 0;
  const auto placement = rings_.load(wanted);
  return placement ? std::optional(placement->first) : std::nullopt;
}

std::optional<cost_model::Placement> PrefixDevice::place_reload(int64_t bytes, double iteration_seconds,
                                                                int64_t drafts) {
  // A pass needs the whole cache when it begins: the reload ends in the iteration before.
  const cost_model::ReloadRequest wanted = request(bytes, iteration_seconds, std::max<int64_t>(0, drafts - 1));
  if (!rings_.reaches(wanted)) return cost_model::Placement{.first = 0, .verify = kWindows - 1};
  return rings_.admit(wanted);
}

serving::Admission::Place PrefixDevice::take_reserved(int64_t iterations) {
  reserved_.push_back(iterations);
  return take();
}

void PrefixDevice::advance() {
  rings_.advance();
  for (int64_t& left : reserved_) --left;
  std::erase_if(reserved_, [](int64_t left) { return left <= 0; });
}

PrefixDevices::PrefixDevices(const PrefixPool& settings) {
  KVARENA_ASSERT(settings.devices > 0 && settings.requests > 0, "a pool of no room");
  for (int64_t i = 0; i < settings.devices; ++i) devices_.emplace_back(settings);
}

PrefixDevice& PrefixDevices::emptiest() {
  return *std::ranges::min_element(devices_, {}, [](const PrefixDevice& device) { return device.requests(); });
}

storage::LinkTotals PrefixDevices::totals() const {
  storage::LinkTotals all;
  for (const PrefixDevice& device : devices_) {
    const storage::LinkTotals one = device.link().totals();
    all.transfers += one.transfers;
    all.bytes += one.bytes;
    all.pieces += one.pieces;
    all.busy_seconds += one.busy_seconds;
  }
  return all;
}

void PrefixDevices::advance() {
  for (PrefixDevice& device : devices_) device.advance();
}

}  // namespace kvarena
