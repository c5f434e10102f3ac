#pragma once
// Contexts on tiers under a rule in its plainest words, and a policy compared with it on random traces.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/core/random.h"
#include "harness/method/registry.h"
#include "harness/storage/placement/tiered_contexts.h"
#include "tests/support/golden.h"

namespace kvarena::storage::testing {

inline std::unique_ptr<Method> named(const nlohmann::json& spec) { return make_method(spec, "test"); }

/// Recency, frequency and age in their plainest form: a list for each tier, the victim found by looking at all.
class PlainTiers {
 public:
  PlainTiers(std::string rule, std::vector<int64_t> capacities)
      : rule_(std::move(rule)), capacities_(std::move(capacities)) {}

  void store(int64_t id, int64_t bytes, int64_t now) {
    items_[id] = {.bytes = bytes, .stored = now, .used = now, .count = 1, .tier = fit(bytes, 0)};
    overflow();
  }
  void read(int64_t id, int64_t now) {
    Item& item = items_.at(id);
    item.used = now;
    ++item.count;
    if (rule_ == "fifo") return;
    item.tier = std::min(item.tier, fit(item.bytes, 0));
    overflow();
  }
  [[nodiscard]] size_t tier(int64_t id) const { return items_.at(id).tier; }

 private:
  struct Item {
    int64_t bytes = 0, stored = 0, used = 0, count = 0;
    size_t tier = 0;
  };
  [[nodiscard]] size_t fit(int64_t bytes, size_t from) const {
    while (from < capacities_.size() && capacities_[from] < bytes) ++from;
    return from;
  }
  [[nodiscard]] std::pair<int64_t, int64_t> rank(const Item& item) const {
    if (rule_ == "fifo") return {item.stored, 0};
    return rule_ == "lru" ? std::pair{item.used, int64_t{0}} : std::pair{item.count, item.used};
  }
  void overflow() {
    for (size_t t = 0; t < capacities_.size(); ++t) {
      while (true) {
        int64_t used = 0;
        Item* victim = nullptr;
        for (auto& [id, item] : items_) {
          if (item.tier != t) continue;
          used += item.bytes;
          if (victim == nullptr || rank(item) < rank(*victim)) victim = &item;
        }
        if (used <= capacities_[t]) break;
        victim->tier = fit(victim->bytes, t + 1);
      }
    }
  }

  std::string rule_;
  std::vector<int64_t> capacities_;
  std::map<int64_t, Item> items_;
};

/// Compares where every context lies after each of 300 events, over 20 seeds.
inline void expect_equals_plain_tiers(const char* rule) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(fmt::format("{} seed {}", rule, seed));
    const RandomStream random(seed, "victims");
    const auto policy = named({{"name", rule}});
    const std::vector<int64_t> capacities = {100 + static_cast<int64_t>(random.below(200, 0)),
                                             200 + static_cast<int64_t>(random.below(400, 1))};
    TieredContexts books({{.name = "host", .capacity = capacities[0], .bandwidth = 1},
                          {.name = "disk", .capacity = capacities[1], .bandwidth = 1},
                          {.name = "remote", .bandwidth = 1}},
                         *policy->placement());
    PlainTiers plain(rule, capacities);
    int64_t stored = 0;
    for (int64_t now = 1; now <= 300; ++now) {
      const auto draw = static_cast<uint64_t>(10 * now);
      if (stored == 0 || random.uniform(draw) < 0.3) {
        const auto bytes = static_cast<int64_t>(1 + random.below(random.below(10, draw + 1) == 0 ? 400 : 80, draw + 2));
        const auto clock = static_cast<double>(now);
        (void)books.store({.id = stored, .forms = {{.bytes = bytes}}, .stored_at = clock, .last_access = clock});
        plain.store(stored++, bytes, now);
      } else {
        const auto id = static_cast<int64_t>(random.below(static_cast<uint64_t>(stored), draw + 3));
        (void)books.access(id, static_cast<double>(now));
        plain.read(id, now);
      }
      for (int64_t id = 0; id < stored; ++id) {
        ASSERT_EQ(static_cast<size_t>(books.find(id)->at.tier), plain.tier(id)) << "context " << id << " at " << now;
      }
    }
  }
}

/// The context that has left room for two after these accesses, or -1.
inline int64_t who_leaves(const char* name, const std::vector<int64_t>& trace) {
  const auto policy = named({{"name", name}});
  TieredContexts books({{.name = "host", .capacity = 2, .bandwidth = 1}, {.name = "remote", .bandwidth = 1}},
                       *policy->placement());
  double now = 0;
  for (const int64_t id : trace) {
    now += 1;
    if (books.find(id) == nullptr) {
      (void)books.store({.id = id, .forms = {{.bytes = 1}}, .stored_at = now, .last_access = now});
    } else {
      (void)books.access(id, now);
    }
  }
  for (const Context& context : books.contexts()) {
    if (context.at.tier == 1) return context.id;
  }
  return int64_t{-1};
}

/// Compares what the fast tier holds after every use with eviction_policies/METHOD.json.
inline void expect_golden_tier(const std::string& method_name) {
  const nlohmann::json cases = kvarena::testing::golden("eviction_policies/" + method_name + ".json")["cases"];
  ASSERT_EQ(cases.size(), 3U);
  for (const nlohmann::json& one : cases) {
    const auto policy = named({{"name", method_name}});
    TieredContexts books(
        {{.name = "host", .capacity = one["capacity"], .bandwidth = 1}, {.name = "remote", .bandwidth = 1}},
        *policy->placement());
    double now = 0;
    for (const nlohmann::json& use : one["uses"]) {
      const auto id = use[0].get<int64_t>();
      now += 1;
      if (books.find(id) == nullptr) {
        (void)books.store({.id = id, .forms = {{.bytes = one["sizes"][id]}}, .stored_at = now, .last_access = now});
      } else {
        (void)books.access(id, now);
      }
      uint64_t held = 0;
      for (const Context& context : books.contexts()) held |= uint64_t{context.at.tier == 0} << context.id;
      ASSERT_EQ(fmt::format("{:x}", held), use[1].get<std::string>()) << "use " << now;
    }
  }
}

}  // namespace kvarena::storage::testing
