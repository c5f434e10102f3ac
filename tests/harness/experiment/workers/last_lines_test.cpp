#include "harness/experiment/workers/last_lines.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvarena::experiment {
namespace {

TEST(LastLines, HandsOnWholeLinesHoweverTheyArrive) {
  std::vector<std::string> seen;
  LastLines lines([&](const std::string& line) { seen.push_back(line); });
  for (const char* piece : {"on", "e\n", "\ntwo\nthr", "ee"}) lines.append(piece);
  EXPECT_EQ(seen, (std::vector<std::string>{"one", "", "two"}));
  lines.finish();
  lines.finish();
  EXPECT_EQ(seen.back(), "three");
  EXPECT_EQ(seen.size(), 4U);
  EXPECT_EQ(lines.text(), "one\n\ntwo\nthree\n");
}

TEST(LastLines, RemembersTheLastOnesAndCutsWhatHasNoEnd) {
  LastLines lines(nullptr);
  for (int i = 0; i < 100; ++i) lines.append("line " + std::to_string(i) + "\n");
  EXPECT_EQ(lines.text().rfind("line 80\n", 0), 0U);
  EXPECT_TRUE(lines.text().ends_with("line 99\n"));
  lines.append(std::string(1'000'000, 'x'));
  EXPECT_LE(lines.text().size(), LastLines::kRemembered * (LastLines::kLongest + 1));
}

}  // namespace
}  // namespace kvarena::experiment
