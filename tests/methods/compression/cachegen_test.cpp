// CacheGen's stream: its authors' numbers (tests/golden/cachegen.py), within half a step, sizes, and damage that is
// found out.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "harness/core/error.h"
#include "harness/method/stream_codec.h"
#include "kernels/common/dtype.h"
#include "tests/support/golden.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::random_floats;

struct Codec {
  explicit Codec(json spec) {
    spec["name"] = "cachegen";
    const auto method = make_method(spec, "test");
    coder = dynamic_cast<const StreamCodecMethod&>(*method).codec().coder(nullptr);
  }
  [[nodiscard]] const StreamCoder& operator*() const { return *coder; }
  std::unique_ptr<StreamCoder> coder;
};

KvChunk random_chunk(int64_t layers, int64_t tokens, int64_t channels) {
  KvChunk chunk{.layers = layers, .tokens = tokens, .channels = channels, .keys = {}, .values = {}};
  chunk.keys = random_floats(layers * tokens * channels, "keys");
  chunk.values = random_floats(layers * tokens * channels, "values");
  for (float& v : chunk.values) v = v * v * v;  // unlike a uniform variable
  return chunk;
}

TEST(CacheGen, TheWorkedExampleComesOut) {
  // 32 layers: layer 31 has 16 bins, c = 7; -1, 0, 0.5, 1 become 0, 7, 11 (10.5 to even would be 10: 3.5 rounds to
  // 4), 14.
  KvChunk chunk = random_chunk(32, 1, 16);
  const float x[] = {-1, 0, 0.5F, 1};
  std::fill(chunk.keys.begin(), chunk.keys.end(), 0.0F);
  std::copy(x, x + 4, chunk.row(true, 31, 0));
  const Codec codec{json::object()};
  const auto frame = write_frame(*codec, chunk);
  std::span<const uint8_t> stream = frame;
  const KvChunk back = read_frame(*codec, stream);
  const float* got = back.row(true, 31, 0);
  EXPECT_EQ(got[0], -1);
  EXPECT_EQ(got[1], 0);
  EXPECT_FLOAT_EQ(got[2], 4.0F / 7);
  EXPECT_EQ(got[3], 1);
  EXPECT_EQ(back.row(true, 3, 0)[5], 0);  // a token of zeros
}

TEST(CacheGen, NumbersComeBackWithinHalfAStepForEveryLengthAndLevel) {
  for (const int64_t tokens : {1, 2, 15, 255, 256}) {
    for (const int64_t level : {1, 2, 3}) {
      const KvChunk chunk = random_chunk(12, tokens, 48);
      const Codec codec{{{"level", level}}};
      const auto frame = write_frame(*codec, chunk);
      std::span<const uint8_t> stream = frame;
      const KvChunk back = read_frame(*codec, stream);
      EXPECT_TRUE(stream.empty());
      for (size_t i = 0; i < chunk.keys.size(); ++i) {
        ASSERT_NEAR(back.keys[i], chunk.keys[i], 0.5 / 5 + 1e-3);
        ASSERT_NEAR(back.values[i], chunk.values[i], 0.5 / 5 + 1e-3);
      }
      EXPECT_EQ(write_frame(*codec, chunk), frame);
    }
  }
}

TEST(CacheGen, FinerLevelsCostMoreAndSmoothTokensLess) {
  KvChunk chunk = random_chunk(32, 256, 64);
  for (int64_t layer = 0; layer < 32; ++layer) {  // neighbours alike, as in real caches
    for (int64_t t = 1; t < 256; ++t) {
      for (int64_t c = 0; c < 64; ++c) {
        chunk.row(true, layer, t)[c] = 0.95F * chunk.row(true, layer, t - 1)[c] + 0.05F * chunk.row(true, layer, t)[c];
      }
    }
  }
  size_t before = 0;
  for (const int64_t level : {1, 2, 3}) {
    const Codec codec{{{"level", level}}};
    const size_t bytes = write_frame(*codec, chunk).size();
    std::printf("cachegen level %ld: %.3f bits an element\n", static_cast<long>(level),
                8.0 * static_cast<double>(bytes) / (2.0 * 32 * 256 * 64));
    EXPECT_GT(bytes, before);
    before = bytes;
  }
}

TEST(CacheGen, AnchorsBoundTheDifferences) {
  const KvChunk chunk = random_chunk(3, 47, 32);
  const Codec codec{{{"delta", "anchor10"}}};
  const auto frame = write_frame(*codec, chunk);
  std::span<const uint8_t> stream = frame;
  const KvChunk back = read_frame(*codec, stream);
  for (int64_t t = 0; t < 47; ++t) {
    for (int64_t c = 0; c < 32; ++c) {
      const double bound = t % 10 == 0 ? 0.5 / 127 + 1e-3 : 2 * 0.5 / 15 + 1e-2;
      ASSERT_NEAR(back.row(true, 1, t)[c], chunk.row(true, 1, t)[c], bound) << t;
    }
  }
}

TEST(CacheGen, AStreamIsReadFrameByFrame) {
  const Codec codec{json::object()};
  std::vector<uint8_t> all;
  for (int64_t i = 1; i <= 3; ++i) {
    const auto frame = write_frame(*codec, random_chunk(2, 7 * i, 16));
    all.insert(all.end(), frame.begin(), frame.end());
  }
  std::span<const uint8_t> stream = all;
  for (int64_t i = 1; i <= 3; ++i) EXPECT_EQ(read_frame(*codec, stream).tokens, 7 * i);
  EXPECT_TRUE(stream.empty());
}

TEST(CacheGen, CutAndFlippedFramesAreErrors) {
  const Codec codec{json::object()};
  const auto frame = write_frame(*codec, random_chunk(2, 20, 16));
  for (size_t cut = 0; cut < frame.size(); cut += cut < 64 ? 1 : 37) {
    std::span<const uint8_t> stream(frame.data(), cut);
    EXPECT_THROW((void)read_frame(*codec, stream), UserError) << cut;
  }
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 500; ++trial) {
    auto damaged = frame;
    damaged[random() % damaged.size()] ^= static_cast<uint8_t>(1U << random() % 8);
    std::span<const uint8_t> stream = damaged;
    EXPECT_THROW((void)read_frame(*codec, stream), UserError);
  }
}

TEST(CacheGen, SizesThatTheBytesCannotHoldTakeNoMemory) {
  // Whoever knows the checksum can write any sizes; 64 layers of 256 tokens of 4096 channels would be 512 MiB.
  struct Empty final : StreamCoder {
    std::vector<uint8_t> encode(const KvChunk& /*chunk*/) const override { return {0}; }
    void decode(std::span<const uint8_t> /*bytes*/, KvChunk& /*chunk*/) const override {}
    int64_t least_bytes(const KvChunk& /*sizes*/) const override { return 0; }
  };
  const Codec codec{json::object()};
  for (const auto& [tokens, why] : {std::pair<int64_t, const char*>{256, "at least 55296"}, {257, "at most 256"}}) {
    const auto frame = write_frame(Empty(), random_chunk(4, tokens, 1024));
    std::span<const uint8_t> stream = frame;
    try {
      (void)read_frame(*codec, stream);
      ADD_FAILURE() << tokens;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  }
  // The least size of a block is that of the shortest real one.
  KvChunk zeros{.layers = 2, .tokens = 5, .channels = 32, .keys = {}, .values = {}};
  zeros.resize();
  EXPECT_EQ((*codec).encode(zeros).size(), (*codec).least_bytes(zeros));
}

TEST(CacheGen, DamageBehindTheChecksumStaysBounded) {
  // The payload alone, as somebody who knows the checksum could forge it: an error, or numbers, never more.
  for (const char* delta : {"none", "anchor10"}) {
    const Codec codec{{{"delta", delta}}};
    const KvChunk chunk = random_chunk(2, 33, 32);
    const auto payload = (*codec).encode(chunk);
    std::mt19937_64 random(2);
    int errors = 0;
    for (int trial = 0; trial < 1000; ++trial) {
      auto damaged = payload;
      if (trial % 3 == 0) damaged.resize(random() % damaged.size());
      for (int flips = 0; flips < 1 + trial % 4 && !damaged.empty(); ++flips) {
        damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
      }
      KvChunk back{.layers = 2, .tokens = 33, .channels = 32, .keys = {}, .values = {}};
      back.resize();
      try {
        (*codec).decode(damaged, back);
      } catch (const UserError&) {
        ++errors;
      }
      for (const float x : back.keys) ASSERT_TRUE(std::isfinite(x));
    }
    EXPECT_GT(errors, 700) << delta;
  }
}

TEST(CacheGen, RefusesWhatIsNotANumber) {
  const Codec codec{json::object()};
  KvChunk chunk = random_chunk(1, 3, 16);
  chunk.values[20] = std::numeric_limits<float>::infinity();
  EXPECT_THROW((void)write_frame(*codec, chunk), UserError);
}

TEST(CacheGen, DecodesAsItsAuthorsCode) {
  const json golden = testing::golden("cachegen.json");
  const auto tokens = golden["tokens"].get<int64_t>();
  const auto channels = golden["channels"].get<int64_t>();
  ASSERT_EQ(golden["cases"].size(), 4U);
  for (const json& one : golden["cases"]) {
    const auto layers = one["layers"].get<int64_t>();
    KvChunk chunk{.layers = layers, .tokens = tokens, .channels = channels, .keys = {}, .values = {}};
    chunk.keys = random_floats(layers * tokens * channels, "cachegen keys");
    chunk.values = random_floats(layers * tokens * channels, "cachegen values");
    for (auto* side : {&chunk.keys, &chunk.values}) {
      for (float& x : *side) x = kernels::f16_to_f32(kernels::f32_to_f16(x));
    }
    const Codec codec{{{"level", one["level"]}}};
    const auto frame = write_frame(*codec, chunk);
    std::span<const uint8_t> stream = frame;
    const KvChunk back = read_frame(*codec, stream);
    for (const bool key : {true, false}) {
      for (const auto& [layer, numbers] : one[key ? "keys" : "values"].items()) {
        for (size_t i = 0; i < numbers.size(); ++i) {
          if (numbers[i].is_null()) continue;
          ASSERT_NEAR(back.row(key, std::stol(layer), 0)[i], numbers[i].get<double>(), 2e-6)
              << "level " << one["level"] << ", layer " << layer << ", " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvarena
