// kvarena transfers as a user runs it.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/harness/cli/check.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;

/// The paper's setting (arXiv:2503.16163, section 3.2) over a link that is described by it: its figures come back.
TEST(TransfersCommand, AGatheredByteTakesFiveTimesAsLongOverADescribedLink) {
  const Finished finished = run_kvarena({"transfers", "--model", "mistral-7b-v0.2", "--link", "pcie4_x16", "--context",
                                         "8192", "--repeats", "1", "--json"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const json out = json::parse(finished.out);
  EXPECT_TRUE(out["emulated"].get<bool>());
  const json& rows = out["rows"];
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0]["bytes"], 2 * 8 * 8192 * 256);
  EXPECT_EQ(rows[1]["bytes"], rows[2]["bytes"]);
  // At least: a loaded machine may take longer than the link's description says, and never less.
  EXPECT_GE(rows[2]["seconds"].get<double>(), 5 * rows[2]["bytes"].get<double>() / 31.5e9);
}

TEST(TransfersCommand, TheRealLinkIsThisMachines) {
  const Finished finished = run_kvarena({"transfers", "--context", "256", "--repeats", "1"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  for (const char* part : {"SmolLM2", "all, contiguous", "chosen, gathered", "measured: this machine"})
    EXPECT_TRUE(contains(finished.out, part)) << part << "\n" << finished.out;
}

TEST(TransfersCommand, WithoutADeviceThatIsSaidInASentence) {
  const Finished finished = run_kvarena({"transfers", "--device", "--context", "256", "--repeats", "1"});
  if (finished.code == 0) {
    EXPECT_TRUE(contains(finished.out, "chosen, gathered")) << finished.out;
  } else {
    EXPECT_TRUE(contains(finished.err, "CUDA")) << finished.err;
  }
}

TEST(TransfersCommand, MistakesAreOneSentence) {
  expect_refused(run_kvarena({"transfers", "--link", "pcie4_x6"}), "did you mean \"pcie4_x16\"");
  expect_refused(run_kvarena({"transfers", "--share", "2"}), "--share: found 2");
  expect_refused(run_kvarena({"transfers", "--context", "0"}), "at least 1");
  expect_refused(run_kvarena({"transfers", "--device", "--link", "pcie4_x16"}), "nothing is emulated");
}

}  // namespace
}  // namespace kvarena::testing
