#pragma once
// Interface of placement policies, which decide where contexts lie: by recency, frequency, age or utility.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "harness/storage/placement/problem.h"

namespace kvarena::storage {

/// Input of a policy. Contexts' `at` is their place in the plan under way.
struct View {
  std::span<const StorageTier> tiers;
  std::span<const Context> contexts;
};

/// A decision to give one context another form, another tier, or both.
struct Step {
  size_t context = 0;  // index in View::contexts
  Choice to;
};

/// Decides and moves nothing. A policy holds parameters only, so that one instance may serve many stores.
class Policy {
 public:
  virtual ~Policy() = default;

  /// First form and tier of a new context, whatever else is stored. Unless overridden: its first form, on the fastest
  /// tier that can hold it.
  [[nodiscard]] virtual Choice first(const Context& context, std::span<const StorageTier> tiers) const;

  /// The next step that frees bytes on `tier`, which holds more than its capacity. It never goes up a tier and never
  /// ends in a tier whose whole capacity is smaller than the object.
  [[nodiscard]] virtual Step make_room(const View& view, int64_t tier) const = 0;

  /// A step that makes better use of free room once every tier is within its capacity, if there is one. Each step must
  /// gain something, so that they come to an end.
  [[nodiscard]] virtual std::optional<Step> use_room(const View& /*view*/) const { return std::nullopt; }

  /// Whether a context that was read moves to the fastest tier that can hold it, in the form it has.
  [[nodiscard]] virtual bool promotes_on_hit() const { return false; }

  /// Whether the policy chooses among forms: then contexts have to be profiled. Others leave a context as it comes.
  [[nodiscard]] virtual bool chooses_forms() const { return false; }

  /// Seconds of TTFT that a whole point of quality is worth in the utility that the policy maximises; nothing where it
  /// maximises none.
  [[nodiscard]] virtual std::optional<double> alpha() const { return std::nullopt; }

  /// Largest drop of a context's answers below its profiled quality before it is profiled anew; nothing: no limit.
  [[nodiscard]] virtual std::optional<double> drift_threshold() const { return std::nullopt; }

  /// Whether the policy places all contexts anew when profiles have changed.
  [[nodiscard]] virtual bool rearranges() const { return false; }

  /// Reads after which it does so too, since frequencies have changed; 0: never.
  [[nodiscard]] virtual int64_t rearranges_after() const { return 0; }
};

/// Policies that choose a victim and push it to the next tier as it is.
class VictimPolicy : public Policy {
 public:
  /// Whether `a` leaves before `b`. A strict order; among equals the one listed first leaves.
  [[nodiscard]] virtual bool leaves_before(const Context& a, const Context& b) const = 0;
  [[nodiscard]] Step make_room(const View& view, int64_t tier) const final;
};

/// Makes room, fastest tier first, until no tier holds more than its capacity, then uses what is left: the greedy
/// heuristic of EvicPress (Algorithm 1) under its own policy. Changes `at` of contexts.
void settle(const Policy& policy, std::span<const StorageTier> tiers, std::span<Context> contexts);

/// Every context at its first choice, then settled.
void place_anew(const Policy& policy, std::span<const StorageTier> tiers, std::span<Context> contexts);

}  // namespace kvarena::storage
