// Ranks with devices (emulated here) as processes of their own, over gloo: this program is the driver and, with the
// words that it gives them, the others.

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "harness/device/open_device.h"
#include "harness/model/open_model.h"
#include "harness/model/ranks/rank_processes.h"
#include "harness/model/ranks/split_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena {
namespace {

constexpr TransformerOptions kHalf{.weights = kernels::DType::bf16, .cache = kernels::DType::bf16};

std::vector<float> answers(Transformer& model, std::span<const int32_t> prompt) {
  std::vector<float> all;
  KvCache cache = model.make_cache();
  for (const auto& [first, count] : {std::pair{0, 20}, {20, 1}, {21, 5}}) {
    const SequencePass pass{.tokens = prompt.subspan(first, count), .cache = &cache, .logits = LogitsRows::all};
    const std::span<const float> logits = model.forward({&pass, 1});
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

class RanksWithDevices : public ::testing::Test {
 protected:
  RanksWithDevices() { testing::write_tiny_model(folder_.path(), 1); }

  [[nodiscard]] Transformer load(int64_t ranks, bool on_device) const {
    const OpenedModel model = open_model(folder_.path());
    Transformer made(
        model.config, *model.checkpoint, kHalf,
        gather_ranks({.ranks = ranks, .checkpoint = folder_.path(), .weights = kHalf.weights, .devices = on_device}));
    if (on_device) {
      made.offload_to(device::open_device("the test", model.config, *model.checkpoint, kHalf, made.ranks()));
    }
    return made;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(RanksWithDevices, AnswersOfTwoAndThreeProcessesHaveTheBitsOfOneDevice) {
  const std::vector<int32_t> prompt = testing::tiny_prompt(26);
  Transformer alone = load(1, true), host = load(1, false);
  const std::vector<float> expected = answers(alone, prompt);
  EXPECT_NE(expected, answers(host, prompt));  // within rounding: the device has computed
  for (const int64_t count : {2, 3}) {
    ::testing::internal::CaptureStderr();
    Transformer split = load(count, true);
    EXPECT_EQ(answers(split, prompt), expected) << count;
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("note: the test: rows go from rank to rank by way of the hosts: rank"), std::string::npos)
        << said;
  }
}

/// "--meet FILE --rank I/N --driver PID" behind "local-rank".
int serve(int argc, char** argv) {
  std::map<std::string, std::string> words;
  for (int i = 2; i + 1 < argc; i += 2) words[argv[i]] = argv[i + 1];
  const std::string rank = words.at("--rank");
  const size_t slash = rank.find('/');
  die_with(static_cast<pid_t>(std::stol(words.at("--driver"))));
  run_rank({.share = {.rank = std::stol(rank.substr(0, slash)), .ranks = std::stol(rank.substr(slash + 1))},
            .meet = words.at("--meet"),
            .open_device = device::open_rank_device});
  return 0;
}

}  // namespace
}  // namespace kvarena

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "local-rank") == 0) return kvarena::serve(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
