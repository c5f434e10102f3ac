// The video stream: read as ffmpeg reads it (tests/golden/llm265.py; the paper's layout is not public), numbers within
// the quantiser's reach, sizes, and damage that is found out.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "harness/core/error.h"
#include "harness/method/stream_codec.h"
#include "tests/support/golden.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::random_floats;

class Llm265 : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      (void)coder(22);
    } catch (const UserError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  static std::unique_ptr<StreamCoder> coder(int64_t qp) {
    const auto method = make_method({{"name", "llm265"}, {"qp", qp}}, "test");
    return dynamic_cast<const StreamCodecMethod&>(*method).codec().coder(nullptr);
  }
};

/// Tokens like their neighbours, channels each of their own size, as in caches.
KvChunk smooth_chunk(int64_t layers, int64_t tokens, int64_t channels) {
  KvChunk chunk{.layers = layers, .tokens = tokens, .channels = channels, .keys = {}, .values = {}};
  chunk.keys = random_floats(layers * tokens * channels, "keys");
  chunk.values = random_floats(layers * tokens * channels, "values");
  for (const bool key : {true, false}) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (int64_t t = 1; t < tokens; ++t) {
        for (int64_t c = 0; c < channels; ++c) {
          float& x = chunk.row(key, layer, t)[c];
          x = 0.9F * chunk.row(key, layer, t - 1)[c] + 0.1F * static_cast<float>(c + 1) * x;
        }
      }
    }
  }
  return chunk;
}

TEST_F(Llm265, FinerQuantisationCostsMoreAndErrsLess) {
  const KvChunk chunk = smooth_chunk(3, 128, 48);
  double error = 0;
  double bits = std::numeric_limits<double>::max();
  for (const int64_t qp : {0, 12, 24, 36}) {
    const auto codec = coder(qp);
    const auto frame = write_frame(*codec, chunk);
    std::span<const uint8_t> stream = frame;
    const KvChunk back = read_frame(*codec, stream);
    EXPECT_TRUE(stream.empty());
    double squares = 0;
    for (size_t i = 0; i < chunk.keys.size(); ++i) {
      squares += std::pow(back.keys[i] - chunk.keys[i], 2) + std::pow(back.values[i] - chunk.values[i], 2);
    }
    const auto n = static_cast<double>(2 * chunk.keys.size());
    const double now = 8.0 * static_cast<double>(frame.size()) / n;
    std::printf("llm265 qp %ld: %.3f bits an element, mean squared error %.2e\n", static_cast<long>(qp), now,
                squares / n);
    EXPECT_LT(now, bits);
    EXPECT_GT(squares / n, error);
    bits = now;
    error = squares / n;
  }
}

TEST_F(Llm265, NumbersComeBackWithinTwoStepsAtTheFinestForEveryLength) {
  for (const int64_t tokens : {1, 15, 16, 17, 100}) {
    const KvChunk chunk = smooth_chunk(2, tokens, 32);
    const auto codec = coder(0);
    const auto frame = write_frame(*codec, chunk);
    std::span<const uint8_t> stream = frame;
    const KvChunk back = read_frame(*codec, stream);
    for (int64_t c = 0; c < 32; ++c) {
      float least = chunk.row(true, 1, 0)[c];
      float most = least;
      for (int64_t t = 0; t < tokens; ++t) {
        least = std::min(least, chunk.row(true, 1, t)[c]);
        most = std::max(most, chunk.row(true, 1, t)[c]);
      }
      const float step = (most - least) / 255;
      for (int64_t t = 0; t < tokens; ++t) {  // f16 of the minimum adds 2^-11 of it
        ASSERT_NEAR(back.row(true, 1, t)[c], chunk.row(true, 1, t)[c], 2.5 * step + std::fabs(least) / 1024) << t;
      }
    }
    EXPECT_EQ(write_frame(*codec, chunk), frame);
  }
}

TEST_F(Llm265, CutAndFlippedFramesAreErrors) {
  const auto codec = coder(22);
  const auto frame = write_frame(*codec, smooth_chunk(2, 20, 16));
  for (size_t cut = 0; cut < frame.size(); cut += cut < 64 ? 1 : 37) {
    std::span<const uint8_t> stream(frame.data(), cut);
    EXPECT_THROW((void)read_frame(*codec, stream), UserError) << cut;
  }
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    auto damaged = frame;
    damaged[random() % damaged.size()] ^= static_cast<uint8_t>(1U << random() % 8);
    std::span<const uint8_t> stream = damaged;
    EXPECT_THROW((void)read_frame(*codec, stream), UserError);
  }
}

TEST_F(Llm265, AVideoOfAnotherSizeIsRefused) {
  const auto codec = coder(22);
  const auto payload = codec->encode(smooth_chunk(2, 20, 16));
  KvChunk taller{.layers = 2, .tokens = 40, .channels = 16, .keys = {}, .values = {}};
  taller.resize();
  EXPECT_THROW(codec->decode(payload, taller), UserError);
  KvChunk chunk = smooth_chunk(1, 3, 16);
  chunk.values[20] = std::numeric_limits<float>::infinity();
  EXPECT_THROW((void)write_frame(*codec, chunk), UserError);
}

TEST_F(Llm265, AVideoOfMoreFramesIsRefusedAtTheFirstTooMany) {
  const auto codec = coder(22);
  const auto one = codec->encode(smooth_chunk(1, 20, 16)), two = codec->encode(smooth_chunk(2, 20, 16));
  std::vector<uint8_t> spliced(one.begin(), one.begin() + 16 * 4);  // a layer's ranges, then a video of two layers
  spliced.insert(spliced.end(), two.begin() + 2 * 16 * 4, two.end());
  KvChunk chunk{.layers = 1, .tokens = 20, .channels = 16, .keys = {}, .values = {}};
  chunk.resize();
  try {
    codec->decode(spliced, chunk);
    FAIL() << "a second frame was taken";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("another frame"), std::string::npos) << error.what();
  }
}

TEST_F(Llm265, ReadsWhatAnotherEncoderWroteAsAnotherDecoderDoes) {
  const json golden = testing::golden("llm265.json");
  ASSERT_EQ(golden["cases"].size(), 2U);
  for (const json& one : golden["cases"]) {
    const auto digits = one["bytes"].get<std::string>();
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < digits.size(); i += 2) {
      bytes.push_back(static_cast<uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
    }
    KvChunk chunk{.layers = golden["layers"],
                  .tokens = golden["tokens"],
                  .channels = golden["channels"],
                  .keys = {},
                  .values = {}};
    chunk.resize();
    coder(one["qp"])->decode(bytes, chunk);
    for (const auto& [side, numbers] : {std::pair{"keys", &chunk.keys}, std::pair{"values", &chunk.values}}) {
      ASSERT_EQ(one[side].size(), (numbers->size() + 4) / 5);
      for (size_t i = 0; i < one[side].size(); ++i) {
        ASSERT_NEAR((*numbers)[5 * i], one[side][i].get<double>(), 1e-4)
            << "qp " << one["qp"] << " " << side << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace kvarena
