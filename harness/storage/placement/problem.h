#pragma once
// Contexts, forms and tiers, and what a choice of form and tier is worth.
// Feng et al. 2025, arXiv:2512.14946 (EvicPress), section 4.2.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/storage/unlimited.h"

namespace kvarena::storage {

/// One place for stored caches. Tiers are listed fastest first; the last one is unlimited.
struct StorageTier {
  std::string name;
  int64_t capacity = kUnlimited;  // bytes
  double bandwidth = 0;           // bytes/s of a read
  double latency_s = 0;           // before the first byte
  bool ready = false;             // it holds caches as attention reads them, which nobody restores
};

/// One way to hold a context: compressed by a method at a ratio.
struct Form {
  std::string method;    // "" = uncompressed
  double keep = 1;       // share of the bytes that is kept
  int64_t bytes = 0;     // stored
  double quality = 1;    // mean over the profile's queries
  double ready_s = 0;    // from stored bytes to an answer's first token: restoring the cache and reading the question
  double restore_s = 0;  // of ready_s, until the cache is restored
  int64_t ready_bytes = 0;  // of the restored cache, on a tier of such
};

struct Choice {
  int64_t form = 0;
  int64_t tier = 0;
  bool operator==(const Choice&) const = default;
};

/// One stored context, or one chunk of it that lies by itself, as policies see it.
struct Context {
  int64_t id = 0;
  std::vector<Form> forms;  // at least one; the first is how it comes, uncompressed unless all are compressed alike
  Choice at;
  int64_t accesses = 1;    // the store counts as one
  double stored_at = 0;    // on any clock that only goes forward
  double last_access = 0;  // on the same clock
  double importance = 1;   // share of its tokens that requests need

  [[nodiscard]] const Form& form(const Choice& choice) const { return forms[static_cast<size_t>(choice.form)]; }
};

/// Bytes that a context takes under a choice.
[[nodiscard]] int64_t bytes_of(const Context& context, const Choice& choice, std::span<const StorageTier> tiers);

/// Seconds from the request to its first token when nothing else waits: the TTFT of the utility.
[[nodiscard]] double first_token_seconds(const Form& form, const StorageTier& tier);

/// (alpha * quality - TTFT) * frequency.
[[nodiscard]] double utility(const Context& context, const Choice& choice, std::span<const StorageTier> tiers,
                             double alpha);

/// Bytes on each tier.
[[nodiscard]] std::vector<int64_t> bytes_per_tier(std::span<const Context> contexts,
                                                  std::span<const StorageTier> tiers);

/// The first tier, from `first` on, that a context fits into at all in one of its forms.
[[nodiscard]] int64_t first_tier_for(const Context& context, int64_t form, std::span<const StorageTier> tiers,
                                     int64_t first = 0);

/// Throws UserError unless tiers have bandwidths above 0, capacities of at least 0, and an unlimited last one.
void check_tiers(std::span<const StorageTier> tiers);

}  // namespace kvarena::storage
