// IMPRESS: frequency times importance, restated by hand (FAST 2025, section 4).

#include "tests/methods/eviction/plain_tiers.h"

namespace kvarena::storage {
namespace {

using testing::named;

TEST(Impress, FrequencyTimesImportanceDecides) {
  // Scores .75 (read three times, a quarter important) and 1.0: the first leaves.
  const auto policy = named({{"name", "impress"}});
  const std::vector<StorageTier> tiers{{.name = "host", .capacity = 1, .bandwidth = 1},
                                       {.name = "remote", .bandwidth = 1}};
  std::vector<Context> contexts{{.id = 0, .forms = {{.bytes = 1}}, .accesses = 3, .importance = 0.25},
                                {.id = 1, .forms = {{.bytes = 1}}, .accesses = 1, .importance = 1}};
  settle(*policy->placement(), tiers, contexts);
  EXPECT_EQ(contexts[0].at.tier, 1);
  EXPECT_EQ(contexts[1].at.tier, 0);
}

}  // namespace
}  // namespace kvarena::storage
