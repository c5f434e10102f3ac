#pragma once
// Restored keys and values of a segment beside those of a fixture that holds every 97th number.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/cache/segment.h"

namespace kvarena::testing {

inline void expect_near(const std::vector<float>& found, const nlohmann::json& expected, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i].get<float>(), tolerance) << what << i;
}

/// Keys and values as of f16 latents.
inline void expect_restored(const Segment& segment, const nlohmann::json& keys, const nlohmann::json& values) {
  for (const bool key : {true, false}) {
    std::vector<float> all, some;
    for (int64_t head = 0; head < segment.shape().kv_heads; ++head) {
      std::vector<float> rows(static_cast<size_t>(segment.entries(head) * segment.shape().head_dim));
      segment.read(head, key ? rows.data() : nullptr, key ? nullptr : rows.data());
      all.insert(all.end(), rows.begin(), rows.end());
    }
    for (size_t i = 0; i < all.size(); i += 97) some.push_back(all[i]);
    expect_near(some, key ? keys : values, 1e-2, key ? "key " : "value ");
  }
}

}  // namespace kvarena::testing
