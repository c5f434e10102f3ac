// Ranks over gloo, as threads of this program: whole processes are in ranks_program_test.cpp.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <sstream>

#include "harness/core/error.h"
#include "harness/model/ranks/parts.h"
#include "harness/model/ranks/rendezvous.h"
#include "tests/support/error_of.h"
#include "tests/support/free_port.h"
#include "tests/support/golden_model.h"
#include "tests/support/rank_answers.h"
#include "tests/support/rank_threads.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using kernels::DType;
using testing::ChannelMaker;
using testing::golden_model;
using testing::RandomCheckpoint;
using testing::RankThreads;
using namespace std::chrono_literals;

constexpr TransformerOptions kHalf{.weights = DType::bf16, .cache = DType::bf16};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

ChannelMaker group_at(const RendezvousAddress& place, const GroupOptions& options = {}) {
  return [=](const Share& share) { return group_channel(std::make_shared<Rendezvous>(place, share, 60s), options); };
}

class Groups : public ::testing::TestWithParam<const char*> {
 protected:
  testing::TemporaryFolder folder_;
};

TEST_P(Groups, AnswersOfTwoAndThreeRanksHaveTheBitsOfOne) {
  const testing::GoldenModel golden = golden_model(GetParam());
  const auto prompt = golden.fixture["prompt"].get<std::vector<int32_t>>();
  Transformer alone = golden.transformer(kHalf);
  const std::vector<float> expected = testing::all_answers(alone, prompt);
  for (const int64_t ranks : {2, 3}) {
    SCOPED_TRACE(ranks);
    const ChannelMaker channels = group_at({.file = folder_.path() / fmt::format("meeting{}", ranks)});
    RankThreads others(ranks, channels, golden.config, DType::bf16, [&] { return golden.checkpoint(); });
    {
      Transformer split(golden.config, golden.checkpoint(), kHalf, channels({.rank = 0, .ranks = ranks}));
      EXPECT_TRUE(same_bits(testing::all_answers(split, prompt), expected));
    }
    others.join();
    for (const std::string& failure : others.failures()) EXPECT_EQ(failure, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Groups,
                         ::testing::Values("llama31", "llama_biased", "qwen2", "qwen3_moe", "deepseek_v2",
                                           "deepseek_v3"),
                         [](const auto& info) { return info.param; });

TEST(Rendezvous, OverAPortTakesRanksFromElsewhere) {
  const ModelConfig config = testing::tiny_config();
  const auto make = [&] { return RandomCheckpoint(testing::llama_tensors(config), 1); };
  const ChannelMaker channels = group_at({.host = "127.0.0.1", .port = testing::free_port()});
  RankThreads others(2, channels, config, DType::bf16, make);
  Transformer split(config, make(), kHalf, channels({.rank = 0, .ranks = 2}));
  Transformer alone = testing::tiny_model(1, kHalf);
  const std::vector<int32_t> prompt = testing::tiny_prompt(20);
  EXPECT_TRUE(same_bits(testing::all_answers(split, prompt), testing::all_answers(alone, prompt)));
}

TEST(Rendezvous, ListensAtTheAddressThatIsGivenAndNowhereElse) {
  const int port = testing::free_port();
  const Rendezvous driver({.host = "127.0.0.1", .port = port}, {.rank = 0, .ranks = 2}, std::chrono::seconds(10));
  const std::string ending = fmt::format(":{:04X}", port);
  std::vector<std::string> listening;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      if (state == "0A" && local.ends_with(ending)) listening.push_back(local);
    }
  }
  EXPECT_EQ(listening, std::vector<std::string>{"0100007F" + ending});
}

TEST(Rendezvous, AddressesAreCheckedByName) {
  EXPECT_EQ(parse_address("node7:2950", "--join").host, "node7");
  EXPECT_EQ(parse_address("node7:2950", "--join").port, 2950);
  EXPECT_EQ(parse_address("[::1]:80", "--join").host, "::1");
  for (const char* bad : {"", "node7", ":80", "node7:", "node7:0", "node7:65536", "node7:8x", "node7:-1"}) {
    try {
      (void)parse_address(bad, "--join");
      ADD_FAILURE() << bad;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("--join"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("HOST:PORT"), std::string::npos) << error.what();
    }
  }
}

class GroupErrors : public ::testing::Test {
 protected:
  void expect(const std::string& said, const std::vector<std::string>& words) const {
    for (const std::string& word : words) EXPECT_NE(said.find(word), std::string::npos) << word << " in: " << said;
  }
  [[nodiscard]] std::unique_ptr<Transformer> load(const ChannelMaker& channels, int64_t ranks = 2) const {
    return std::make_unique<Transformer>(config_, make_(), kHalf, channels({.rank = 0, .ranks = ranks}));
  }

  testing::TemporaryFolder folder_;
  RendezvousAddress place_{.file = folder_.path() / "meeting"};
  ModelConfig config_ = testing::tiny_config();
  std::function<RandomCheckpoint()> make_ = [this] { return RandomCheckpoint(testing::llama_tensors(config_), 1); };
};

TEST_F(GroupErrors, ARankThatCannotLoadItsShareSaysWhy) {
  std::thread rank([&] {
    Rendezvous rendezvous(place_, {.rank = 1, .ranks = 2}, 60s);
    set_failure(rendezvous, "/models/tiny: found nothing");
  });
  const std::string said = testing::error_of([&] { (void)load(group_at(place_)); });
  rank.join();
  expect(said, {"rank 1 of 2: /models/tiny: found nothing"});
}

TEST_F(GroupErrors, ARankThatNeverComesIsNamed) {
  expect(testing::error_of([&] { (void)load(group_at(place_, {.arrival = 1s}), 3); }),
         {"rank 1 of 3", "no sign of it after 1 s"});
}

TEST_F(GroupErrors, AnotherCheckpointIsNamed) {
  const ChannelMaker channels = group_at(place_);
  RankThreads others(2, channels, config_, DType::bf16,
                     [this] { return RandomCheckpoint(testing::llama_tensors(config_), 2); });
  expect(testing::error_of([&] { (void)load(channels); }), {"rank 1 of 2", "checkpoint"});
}

/// A rank that has come and then does nothing, or leaves.
class Idler {
 public:
  Idler(const ChannelMaker& channels, const ModelConfig& config, bool stays) {
    thread_ = std::thread([this, channels, config, stays] {
      const RandomCheckpoint checkpoint(testing::llama_tensors(config), 1);
      const Share share{.rank = 1, .ranks = 2};
      ModelWeights weights = load_weights(config, checkpoint, DType::bf16, share);
      const auto channel = channels(share);
      channel->meet();
      send_record(*channel, 0, introduce(share, weights, fingerprint_of(checkpoint)));
      while (stays && !released_) std::this_thread::sleep_for(10ms);
    });
  }
  ~Idler() {
    released_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> released_ = false;
  std::thread thread_;
};

TEST_F(GroupErrors, ARankThatLeavesOrHangsIsNamedAndNobodyWaitsLonger) {
  for (const bool stays : {false, true}) {
    const ChannelMaker channels = group_at({.file = folder_.path() / (stays ? "stays" : "leaves")},
                                           {.answer = std::chrono::seconds(stays ? 1 : 60)});
    const Idler rank(channels, config_, stays);
    const auto model = load(channels);
    const std::vector<int32_t> prompt = testing::tiny_prompt(12);
    for (int attempt = 0; attempt < 2; ++attempt) {
      KvCache cache = model->make_cache();
      const SequencePass pass{.tokens = prompt, .cache = &cache};
      expect(testing::error_of([&] { (void)model->forward({&pass, 1}); }), {"rank 1 of 2", "answer"});
    }
  }
}

}  // namespace
}  // namespace kvarena
