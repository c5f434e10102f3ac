#include "harness/cost_model/resource_rings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/core/error.h"

namespace kvarena::cost_model {
namespace {

/// Sums of many charges meet their limit exactly in real numbers; this forgives their rounding, nothing more.
constexpr double rounding = 1e-9;

}  // namespace

ResourceRings::ResourceRings(RingSettings settings) : settings_(settings), ring_(settings.windows) {
  KVARENA_ASSERT(settings.windows >= 2, fmt::format("{} windows", settings.windows));
}

std::optional<int64_t> ResourceRings::span_of(const ReloadRequest& request) const {
  KVARENA_ASSERT(request.link_bandwidth > 0 && request.iteration_seconds > 0, "rates are positive");
  const double length = request.bytes / (request.link_bandwidth * request.iteration_seconds);
  if (!(length <= static_cast<double>(settings_.windows - 1))) return std::nullopt;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(length)));
}

std::optional<Placement> ResourceRings::admit(const ReloadRequest& request) {
  const std::optional<int64_t> span = span_of(request);
  if (!span) return std::nullopt;
  const int64_t last = settings_.windows - 1;
  const int64_t anchor = std::clamp(request.draft_length, *span, last);
  for (int64_t distance = 0; distance <= last; ++distance) {
    for (const int64_t verify : {anchor - distance, anchor + distance}) {
      if (verify < *span || verify > last || (distance == 0 && verify != anchor)) continue;
      const Placement placement{.first = verify - *span + 1, .verify = verify};
      if (reserve(request, placement, request.bytes)) return placement;
    }
  }
  return std::nullopt;
}

std::optional<Placement> ResourceRings::load(const ReloadRequest& request) {
  const std::optional<int64_t> span = span_of(request);
  for (int64_t last = span.value_or(settings_.windows) - 1; span && last < settings_.windows; ++last) {
    const Placement placement{.first = last - *span + 1, .verify = last};
    if (reserve(request, placement, 0)) return placement;
  }
  return std::nullopt;
}

bool ResourceRings::reserve(const ReloadRequest& request, const Placement& placement, double in_flight) {
  if (!holds(request, placement, in_flight)) return false;
  for (int64_t i = 0; i < placement.span(); ++i) {
    Window& window = ring_[(now_ + placement.first + i) % settings_.windows];
    window.link_seconds += charge(request, placement.span(), i);
    window.bytes += in_flight;
  }
  return true;
}

bool ResourceRings::holds(const ReloadRequest& request, const Placement& placement, double in_flight) const {
  const double free = settings_.memory_bytes - settings_.weight_bytes - request.resident_bytes;
  for (int64_t i = 0; i < placement.span(); ++i) {
    const Window& window = slot(placement.first + i);
    if (window.link_seconds + charge(request, placement.span(), i) > request.iteration_seconds * (1 + rounding)) {
      return false;
    }
    if (window.bytes + in_flight > free + settings_.memory_bytes * rounding) return false;
  }
  return true;
}

double ResourceRings::charge(const ReloadRequest& request, int64_t span, int64_t index) const {
  const double seconds = request.bytes / request.link_bandwidth;
  if (settings_.spread == LinkSpread::uniform) return seconds / static_cast<double>(span);
  return std::clamp(seconds - static_cast<double>(index) * request.iteration_seconds, 0.0, request.iteration_seconds);
}

void ResourceRings::advance() {
  ring_[now_] = {};
  now_ = (now_ + 1) % settings_.windows;
}

}  // namespace kvarena::cost_model
