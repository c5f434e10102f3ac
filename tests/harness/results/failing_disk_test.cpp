// A disk that fails at any moment: the run ends with a sentence, what was committed is there and whole, and the same
// run given again ends as an undisturbed one does.

#include "tests/harness/results/failing_disk.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "harness/core/error.h"
#include "harness/results/soundness.h"
#include "tests/harness/results/support.h"

namespace kvarena::results {
namespace {

constexpr int kSamples = 6;

/// One run of two cells, as a runner does it; what is there already is left out. Whatever was committed before it threw
/// is in `committed`.
void run_experiment(const std::filesystem::path& path, std::set<std::string>& committed) {
  auto store = ResultsStore::open_or_create(path);
  const std::string run = store.begin_run({.experiment = "exp", .title = "title"}, {.experiment = "exp"});
  store.upsert_cells(std::array{small_cell("a", "full", 0, kSamples), small_cell("b", "snap", 1, kSamples)});
  for (int i = 0; i < kSamples; ++i) {
    std::vector<SampleResult> lacking;
    for (const char* cell : {"a", "b"}) {
      const SampleResult sample = small_sample(cell, i);
      if (!store.read().done_samples(cell).contains(sample.sample_id)) lacking.push_back(sample);
    }
    store.commit(run, lacking);
    for (const SampleResult& sample : lacking) committed.insert(sample.cell_id + sample.sample_id);
  }
  for (const char* cell : {"a", "b"}) store.settle_cell(cell, {});
  store.finish_run(run, RunState::finished);
}

std::string message_of_run(const std::filesystem::path& path, std::set<std::string>& committed) {
  try {
    run_experiment(path, committed);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

class DiskFailures : public ::testing::TestWithParam<DiskFailure> {};

TEST_P(DiskFailures, AtAnyMomentCostNothingThatWasCommitted) {
  const TemporaryFolder folder;
  std::set<std::string> everything;
  int64_t operations = 0;
  {
    const FailingDisk disk(GetParam(), std::numeric_limits<int64_t>::max());
    run_experiment(folder / "undisturbed.db", everything);
    operations = disk.operations();
  }
  const std::string undisturbed = ResultsReader(folder / "undisturbed.db").content_digest();
  ASSERT_GT(operations, GetParam() == DiskFailure::sync ? 2 : 20);
  for (int64_t first = 0; first < operations; ++first) {
    SCOPED_TRACE(fmt::format("operation {} of {}", first, operations));
    const auto path = folder / fmt::format("{}.db", first);
    std::set<std::string> committed;
    FailingDisk disk(GetParam(), first);
    const std::string message = message_of_run(path, committed);
    if (message.empty()) {  // it failed when the log was folded into the file: the next who opens it does that
      EXPECT_EQ(committed, everything);
    } else {
      EXPECT_EQ(message.rfind(path.string(), 0), 0U) << message;
      EXPECT_NE(message.find("what was committed is kept"), std::string::npos) << message;
    }
    disk.repair();
    std::set<std::string> again;
    EXPECT_EQ(message_of_run(path, again), "");
    for (const std::string& sample : committed) EXPECT_FALSE(again.contains(sample)) << sample << " was lost";
    EXPECT_EQ(find_faults(path), std::vector<std::string>{});
    EXPECT_EQ(ResultsReader(path).content_digest(), undisturbed);
  }
}

std::string name_of(const ::testing::TestParamInfo<DiskFailure>& info) {
  constexpr std::array kNames = {"Full", "Write", "Sync", "Torn"};
  return kNames.at(static_cast<size_t>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Store, DiskFailures,
                         ::testing::Values(DiskFailure::full, DiskFailure::write, DiskFailure::sync, DiskFailure::torn),
                         name_of);

}  // namespace
}  // namespace kvarena::results
