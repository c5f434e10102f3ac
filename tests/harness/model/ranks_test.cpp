// A model in shares has the bits of the whole one: over a channel in memory here, over process groups in
// tests/harness/model/ranks.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "harness/core/error.h"
#include "harness/model/weights.h"
#include "tests/support/golden_model.h"
#include "tests/support/rank_answers.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using kernels::DType;
using kernels::PackedMatrix;
using testing::golden_model;
using testing::memory_channels;
using testing::RandomCheckpoint;
using testing::RankThreads;

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST(Share, TheRanksHoldEveryRowOnce) {
  for (const int64_t n : {0, 1, 31, 32, 33, 64, 96, 100, 1536, 49152}) {
    for (const int64_t unit : {1, 32}) {
      for (const int64_t ranks : {1, 2, 3, 7}) {
        int64_t next = 0;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const RowRange held = Share{.rank = rank, .ranks = ranks}.of(n, unit);
          EXPECT_EQ(held.begin, next);
          EXPECT_TRUE(held.begin % unit == 0 || held.begin == n);
          EXPECT_LE(held.count(), ((n + unit - 1) / unit + ranks - 1) / ranks * unit);
          next = held.end;
        }
        EXPECT_EQ(next, n);
      }
    }
  }
}

TEST(Share, ProductsOfSlicesAreSlicesOfTheProduct) {
  const RandomStream numbers(11, "slices");
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{100, 40}, {576, 64}, {33, 7}, {96, 300}}) {
    std::vector<float> w(static_cast<size_t>(n * k));
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(numbers.uniform(i) - 0.5);
    std::vector<float> x(static_cast<size_t>(50 * k));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(numbers.uniform(w.size() + i) - 0.5);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const PackedMatrix whole = kernels::pack_weights(w.data(), n, k, dtype);
      for (const int64_t rows : {1, 3, 12, 13, 50}) {
        std::vector<float> expected(static_cast<size_t>(rows * n));
        kernels::matmul({.x = x.data(), .m = rows, .x_stride = k, .w = &whole, .y = expected.data(), .y_stride = n});
        for (const int64_t ranks : {2, 3, 5}) {
          std::vector<float> y(expected.size());
          for (int64_t rank = 0; rank < ranks; ++rank) {
            const RowRange held = Share{.rank = rank, .ranks = ranks}.of(n);
            const PackedMatrix slice = kernels::pack_weights(w.data() + held.begin * k, held.count(), k, dtype);
            kernels::matmul(
                {.x = x.data(), .m = rows, .x_stride = k, .w = &slice, .y = y.data() + held.begin, .y_stride = n});
          }
          EXPECT_TRUE(same_bits(y, expected)) << n << "x" << k << ", rows " << rows << ", ranks " << ranks;
        }
      }
    }
  }
}

class Ranks : public ::testing::TestWithParam<std::string> {};

TEST_P(Ranks, EveryAnswerHasTheBitsOfOneRank) {
  const testing::GoldenModel golden = golden_model(GetParam());
  const auto prompt = golden.fixture["prompt"].get<std::vector<int32_t>>();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TransformerOptions options{.weights = dtype, .cache = dtype};
    Transformer alone = golden.transformer(options);
    const std::vector<float> expected = testing::all_answers(alone, prompt);
    for (const int64_t ranks : {2, 3}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, kernels::name_of(dtype)));
      const testing::ChannelMaker channels = memory_channels();
      RankThreads others(ranks, channels, golden.config, dtype, [&] { return golden.checkpoint(); });
      {
        Transformer split(golden.config, golden.checkpoint(), options, channels({.rank = 0, .ranks = ranks}));
        EXPECT_TRUE(same_bits(testing::all_answers(split, prompt), expected));
        EXPECT_EQ(split.weight_bytes(), alone.weight_bytes());
        EXPECT_EQ(split.rank_bytes().size(), static_cast<size_t>(ranks));
        EXPECT_EQ(split.fingerprint(), alone.fingerprint());
      }
      others.join();
      for (const std::string& failure : others.failures()) EXPECT_EQ(failure, "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Ranks, ::testing::ValuesIn(testing::golden_model_names()),
                         [](const auto& info) { return info.param; });

/// Large enough that panels divide evenly.
ModelConfig wide_config() {
  ModelConfig config = testing::tiny_config();
  config.hidden_size = 384;
  config.intermediate_size = 768;
  config.vocab_size = 960;
  config.q_heads = 12;
  config.kv_heads = 6;
  return config;
}

TEST(RankWeights, AreDividedAndOnlyTheRowsOfTheShareAreRead) {
  const ModelConfig config = wide_config();
  const auto make = [&] { return RandomCheckpoint(testing::llama_tensors(config), 1); };
  for (const int64_t ranks : {2, 3}) {
    const testing::ChannelMaker channels = memory_channels();
    RankThreads others(ranks, channels, config, DType::bf16, make);
    const Transformer split(config, make(), {}, channels({.rank = 0, .ranks = ranks}));
    int64_t total = 0;
    for (const int64_t held : split.rank_bytes()) {
      total += held;
      EXPECT_NEAR(static_cast<double>(held), static_cast<double>(split.weight_bytes()) / static_cast<double>(ranks),
                  0.05 * static_cast<double>(split.weight_bytes()));
    }
    EXPECT_EQ(total, split.weight_bytes());
  }
  const RandomCheckpoint checkpoint = make();
  const ModelWeights share = load_weights(config, checkpoint, DType::bf16, {.rank = 1, .ranks = 3});
  EXPECT_LE(checkpoint.largest_read, 320 * config.hidden_size);  // a third of the vocabulary
  EXPECT_EQ(share.embedding.matrix.n(), 320);
}

std::string refusal(const testing::ChannelMaker& channels, const ModelConfig& config, uint64_t seed) {
  try {
    const Transformer model(config, RandomCheckpoint(testing::llama_tensors(config), seed), {},
                            channels({.rank = 0, .ranks = 2}));
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RankErrors, AnotherCheckpointOrAnotherShareIsRefusedByRank) {
  const ModelConfig config = testing::tiny_config();
  const auto make = [&] { return RandomCheckpoint(testing::llama_tensors(config), 1); };
  {
    const testing::ChannelMaker channels = memory_channels();
    RankThreads others(2, channels, config, DType::bf16, make);
    const std::string said = refusal(channels, config, 2);
    EXPECT_NE(said.find("rank 1 of 2: found a checkpoint"), std::string::npos) << said;
    others.join();
    EXPECT_NE(others.failures()[1].find("rank 0"), std::string::npos) << others.failures()[1];
  }
  {
    const testing::ChannelMaker channels = memory_channels();
    RankThreads others(2, channels, config, DType::f32, make);
    const std::string said = refusal(channels, config, 1);
    EXPECT_NE(said.find("rank 1 of 2: found"), std::string::npos) << said;
    EXPECT_NE(said.find("bytes"), std::string::npos) << said;
  }
}

/// A channel that closes after some messages were sent.
class Dying final : public RankChannel {
 public:
  Dying(std::unique_ptr<RankChannel> inner, int64_t messages) : inner_(std::move(inner)), left_(messages) {}
  [[nodiscard]] Share share() const override { return inner_->share(); }
  void meet() override { inner_->meet(); }
  [[nodiscard]] std::unique_ptr<Transfer> send(int64_t to, std::span<const float> data) override {
    if (left_-- == 0) throw UserError("out of memory");
    return inner_->send(to, data);
  }
  [[nodiscard]] std::unique_ptr<Transfer> receive(int64_t from, std::span<float> data, WaitLimit wait_limit) override {
    return inner_->receive(from, data, wait_limit);
  }

 private:
  std::unique_ptr<RankChannel> inner_;
  int64_t left_;
};

TEST(RankErrors, ARankThatDiesIsNamedThenAndEverAfter) {
  const ModelConfig config = testing::tiny_config();
  const auto make = [&] { return RandomCheckpoint(testing::llama_tensors(config), 1); };
  const std::vector<int32_t> prompt = testing::tiny_prompt(12);
  for (const int64_t messages : {1, 2, 5, 11}) {
    const testing::ChannelMaker channels = memory_channels();
    const testing::ChannelMaker dying = [&](const Share& share) {
      return std::make_unique<Dying>(channels(share), messages);
    };
    RankThreads others(2, dying, config, DType::bf16, make);
    Transformer model(config, make(), {}, channels({.rank = 0, .ranks = 2}));
    for (int attempt = 0; attempt < 2; ++attempt) {
      KvCache cache = model.make_cache();
      const SequencePass pass{.tokens = prompt, .cache = &cache};
      try {
        (void)model.forward({&pass, 1});
        FAIL() << "nobody noticed";
      } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("rank 1 is gone"), std::string::npos) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace kvarena
