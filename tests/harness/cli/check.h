#pragma once
// Checks shared by tests of the program.

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "tests/harness/cli/subprocess.h"
#include "tests/support/default_model.h"

namespace kvarena::testing {

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Whether scripts/setup has brought the model that runs of the program need.
inline bool default_model_is_there() { return std::filesystem::exists(default_model()); }

/// The text with single spaces where it has several, or line ends.
inline std::string flowing(const std::string& text) {
  std::istringstream words(text);
  std::string flow;
  for (std::string word; words >> word;) flow += word + " ";
  return flow;
}

/// Nothing on standard output, `message` on standard error, which names the program first and shows no stack; exit
/// code 2.
inline void expect_refused(const Finished& finished, const std::string& message) {
  EXPECT_EQ(finished.code, 2) << finished.err;
  EXPECT_EQ(finished.out, "");
  EXPECT_TRUE(contains(finished.err, message)) << finished.err;
  EXPECT_EQ(finished.err.rfind("kvarena: ", 0), 0U) << finished.err;
  EXPECT_FALSE(contains(finished.err, "should not happen")) << finished.err;
}

}  // namespace kvarena::testing
