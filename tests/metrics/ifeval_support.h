#pragma once
// The fixture of tests/golden/metrics_ifeval.py, and what tests of packages' data share.

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::metrics {

inline const nlohmann::json& ifeval_fixture() {
  static const nlohmann::json kFixture =
      nlohmann::json::parse(read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/metrics_ifeval.json"));
  return kFixture;
}

#define SKIP_WITHOUT(folder) \
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << (folder) << "; scripts/setup fetches it"

/// The message of the UserError that `act` throws.
inline std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace kvarena::metrics
