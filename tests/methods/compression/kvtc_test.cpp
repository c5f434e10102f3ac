// KVTC's transform, bit allocation and stream: restated in float64 (tests/golden/kvtc.py; there is no code by the
// authors), and on weights that its own fitter solves from rows made here.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "harness/core/error.h"
#include "harness/method/fitter.h"
#include "harness/method/stream_codec.h"
#include "tests/support/golden.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::random_floats;

constexpr int64_t kLayers = 3, kChannels = 32, kWidth = kLayers * kChannels;

/// Numbers of `tokens` tokens, [tokens, layers, channels]: a few directions that cross all layers, a mean, and noise.
std::vector<float> rows_of(int64_t tokens, const std::string& seed, float noise, int64_t directions = 12) {
  const std::vector<float> basis = random_floats(directions * kWidth, "basis"), mean = random_floats(kWidth, "mean");
  const std::vector<float> along = random_floats(tokens * directions, seed + "along");
  const std::vector<float> blur = random_floats(tokens * kWidth, seed + "blur");
  std::vector<float> rows(static_cast<size_t>(tokens * kWidth));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < kWidth; ++c) {
      float x = 5 * mean[c] + noise * blur[t * kWidth + c];
      for (int64_t i = 0; i < directions; ++i) {
        x += along[t * directions + i] * basis[i * kWidth + c] / static_cast<float>(i + 1);
      }
      rows[t * kWidth + c] = x;
    }
  }
  return rows;
}

KvChunk chunk_of(int64_t tokens, const std::string& seed, float noise) {
  KvChunk chunk{.layers = kLayers, .tokens = tokens, .channels = kChannels, .keys = {}, .values = {}};
  chunk.resize();
  for (const bool key : {true, false}) {
    const std::vector<float> rows = rows_of(tokens, seed + (key ? "k" : "v"), noise);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        std::copy_n(&rows[(t * kLayers + layer) * kChannels], kChannels, chunk.row(key, layer, t));
      }
    }
  }
  return chunk;
}

struct Kvtc {
  explicit Kvtc(json spec, float noise = 0.02F) {
    spec["name"] = "kvtc";
    method = make_method(spec, "test");
    const auto fitter = method->fitter();
    const int64_t tokens = 300;
    const FittedTensors record = {{"keys", {{tokens, kLayers, kChannels}, rows_of(tokens, "fit k", noise)}},
                                  {"values", {{tokens, kLayers, kChannels}, rows_of(tokens, "fit v", noise)}}};
    auto weights = std::make_shared<FittedWeights>();
    weights->place = "test";
    weights->tensors = fitter->assemble({fitter->solve({record}, RandomStream(1, "fit"))});
    facts.fitted = [weights](const FittedRequest&) { return weights; };
    coder = dynamic_cast<const StreamCodecMethod&>(*method).codec().coder(&facts);
    tensors = weights->tensors;
  }
  std::unique_ptr<Method> method;
  ModelFacts facts;
  FittedTensors tensors;
  std::unique_ptr<StreamCoder> coder;
};

struct Restored {
  double error = 0;  // mean square, relative to the variance of the numbers
  size_t bytes = 0;
};
Restored restore(const StreamCoder& coder, const KvChunk& chunk) {
  const std::vector<uint8_t> frame = write_frame(coder, chunk);
  std::span<const uint8_t> stream = frame;
  const KvChunk back = read_frame(coder, stream);
  EXPECT_TRUE(stream.empty());
  Restored result{.bytes = frame.size()};
  double sum = 0;
  double squares = 0;
  for (size_t i = 0; i < chunk.keys.size(); ++i) {
    result.error += std::pow(back.keys[i] - chunk.keys[i], 2) + std::pow(back.values[i] - chunk.values[i], 2);
    sum += chunk.keys[i] + chunk.values[i];
    squares += std::pow(chunk.keys[i], 2) + std::pow(chunk.values[i], 2);
  }
  const auto n = static_cast<double>(2 * chunk.keys.size());
  result.error /= squares - sum * sum / n;
  return result;
}

TEST(Kvtc, DirectionsAreOrthonormalAndSortedByVariance) {
  for (const char* basis : {"global", "per_layer"}) {
    const Kvtc kvtc({{"components", 48}, {"basis", basis}});
    const FittedTensor& found = kvtc.tensors.at("keys.basis");
    const FittedTensor& part = kvtc.tensors.at("keys.part");
    const int64_t n = found.shape[0], width = found.shape[1];
    EXPECT_EQ(width, std::string(basis) == "global" ? kWidth : kChannels);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        if (part.values[i] != part.values[j]) continue;
        double dot = 0;
        for (int64_t c = 0; c < width; ++c) dot += found.values[i * width + c] * found.values[j * width + c];
        ASSERT_NEAR(dot, i == j ? 1.0 : 0.0, 1e-4) << basis << " " << i << " " << j;
      }
    }
    const std::vector<float>& variance = kvtc.tensors.at("keys.variance").values;
    EXPECT_TRUE(std::is_sorted(variance.rbegin(), variance.rend())) << basis;
  }
}

TEST(Kvtc, WithAllComponentsIn16BitsNothingIsLost) {
  // 64 components at most are runs of one; per_layer gives each layer its 32 channels.
  const Kvtc kvtc({{"components", kWidth}, {"target_cr", 1}}, 0.0F);
  EXPECT_LT(restore(*kvtc.coder, chunk_of(40, "a", 0.0F)).error, 1e-6);
}

TEST(Kvtc, ErrorNeverFallsAsTheRatioRisesAndBytesNeverRise) {
  for (const char* basis : {"global", "per_layer"}) {
    double error = 0;
    size_t bytes = std::numeric_limits<size_t>::max();
    for (const double ratio : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0}) {
      const Kvtc kvtc({{"components", kWidth}, {"basis", basis}, {"target_cr", ratio}, {"entropy", "none"}});
      const KvChunk chunk = chunk_of(64, "b", 0.02F);
      const Restored now = restore(*kvtc.coder, chunk);
      const double bits = 8.0 * static_cast<double>(now.bytes) / static_cast<double>(2 * chunk.keys.size());
      std::printf("kvtc %s, ratio %.0f: %.3f bits an element, relative error %.2e\n", basis, ratio, bits, now.error);
      EXPECT_GE(now.error, error * 0.98) << basis << " " << ratio;
      EXPECT_LE(now.bytes, bytes) << basis << " " << ratio;
      EXPECT_LE(bits, 16 / ratio + 0.1) << basis << " " << ratio;  // the frame's header is 0.04 bits here
      error = now.error;
      bytes = now.bytes;
    }
    EXPECT_LT(error, 1.0) << basis;
  }
}

TEST(Kvtc, DirectionsAcrossLayersBeatThoseWithinLayers) {
  const KvChunk chunk = chunk_of(64, "c", 0.02F);
  const Kvtc global({{"components", kWidth}, {"target_cr", 16}});
  const Kvtc within({{"components", kWidth}, {"target_cr", 16}, {"basis", "per_layer"}});
  EXPECT_LT(restore(*global.coder, chunk).error, restore(*within.coder, chunk).error);
}

TEST(Kvtc, EveryEntropyStageGivesTheSameNumbersAndEveryLengthComesBack) {
  for (const int64_t tokens : {1, 2, 17, 256}) {
    const KvChunk chunk = chunk_of(tokens, "d", 0.02F);
    double error = -1;
    for (const char* entropy : {"none", "deflate", "zstd"}) {
      const Kvtc kvtc({{"components", 40}, {"target_cr", 8}, {"entropy", entropy}});
      const double now = restore(*kvtc.coder, chunk).error;
      EXPECT_TRUE(error < 0 || now == error) << entropy;
      error = now;
      EXPECT_EQ(write_frame(*kvtc.coder, chunk), write_frame(*kvtc.coder, chunk));
    }
  }
}

TEST(Kvtc, CutAndFlippedFramesAreErrors) {
  const Kvtc kvtc({{"components", 40}, {"target_cr", 8}});
  const auto frame = write_frame(*kvtc.coder, chunk_of(20, "e", 0.02F));
  for (size_t cut = 0; cut < frame.size(); cut += cut < 64 ? 1 : 37) {
    std::span<const uint8_t> stream(frame.data(), cut);
    EXPECT_THROW((void)read_frame(*kvtc.coder, stream), UserError) << cut;
  }
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    auto damaged = frame;
    damaged[random() % damaged.size()] ^= static_cast<uint8_t>(1U << random() % 8);
    std::span<const uint8_t> stream = damaged;
    EXPECT_THROW((void)read_frame(*kvtc.coder, stream), UserError);
  }
}

TEST(Kvtc, DamageBehindTheChecksumStaysBounded) {
  const KvChunk chunk = chunk_of(33, "f", 0.02F);
  for (const char* entropy : {"none", "deflate", "zstd"}) {
    const Kvtc kvtc({{"components", 40}, {"target_cr", 8}, {"entropy", entropy}});
    const auto payload = kvtc.coder->encode(chunk);
    std::mt19937_64 random(2);
    int errors = 0;
    for (int trial = 0; trial < 500; ++trial) {
      auto damaged = payload;
      if (trial % 3 == 0) damaged.resize(random() % damaged.size());
      for (int flips = 0; flips < 1 + trial % 4 && !damaged.empty(); ++flips) {
        damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
      }
      KvChunk back{.layers = kLayers, .tokens = 33, .channels = kChannels, .keys = {}, .values = {}};
      back.resize();
      try {
        kvtc.coder->decode(damaged, back);
      } catch (const UserError&) {
        ++errors;
      }
      for (const float x : back.keys) ASSERT_TRUE(std::isfinite(x));
    }
    EXPECT_GT(errors, 160) << entropy;  // at least what was cut
  }
}

TEST(Kvtc, SaysWhatDoesNotFit) {
  const Kvtc kvtc(json::object({{"components", 40}}));
  KvChunk other{.layers = 2, .tokens = 3, .channels = kChannels, .keys = {}, .values = {}};
  other.resize();
  EXPECT_THROW((void)write_frame(*kvtc.coder, other), UserError);
  KvChunk chunk = chunk_of(3, "g", 0.02F);
  chunk.values[20] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW((void)write_frame(*kvtc.coder, chunk), UserError);
  chunk.values[20] = 1e30F;
  EXPECT_THROW((void)write_frame(*kvtc.coder, chunk), UserError);
  const auto method = make_method({{"name", "kvtc"}}, "test");
  EXPECT_THROW((void)dynamic_cast<const StreamCodecMethod&>(*method).codec().coder(nullptr), UserError);
}

/// Nested lists of numbers in their order.
FittedTensor in_order(const json& numbers, std::vector<int64_t> shape) {
  FittedTensor tensor{.shape = std::move(shape), .values = {}};
  const auto add = [&](const json& list, const auto& again) -> void {
    for (const json& item : list) item.is_array() ? again(item, again) : tensor.values.push_back(item.get<float>());
  };
  add(numbers, add);
  return tensor;
}

TEST(Kvtc, CodesAsRestatedInFloat64) {
  const json golden = testing::golden("kvtc.json");
  auto weights = std::make_shared<FittedWeights>();
  weights->place = "golden";
  for (const std::string side : {"keys", "values"}) {
    const json& given = golden["tensors"];
    weights->tensors[side + ".mean"] = {.shape = {32}, .values = given[side + ".mean"].get<std::vector<float>>()};
    weights->tensors[side + ".variance"] = {.shape = {32},
                                            .values = given[side + ".variance"].get<std::vector<float>>()};
    weights->tensors[side + ".part"] = {.shape = {32}, .values = std::vector<float>(32, 0.0F)};
    weights->tensors[side + ".basis"] = in_order(given[side + ".basis"], {32, 32});
    weights->tensors[side + ".errors"] = in_order(given[side + ".errors"], {5, 3, 32});
  }
  ModelFacts facts;
  facts.fitted = [weights](const FittedRequest&) { return weights; };
  KvChunk chunk{.layers = 2, .tokens = 6, .channels = 16, .keys = {}, .values = {}};
  chunk.resize();
  const auto each = [&](const auto& use) {
    for (const bool key : {true, false}) {
      for (int64_t t = 0; t < 6; ++t) {
        for (int64_t i = 0; i < 32; ++i) use(key, t, i);
      }
    }
  };
  each([&](bool key, int64_t t, int64_t i) {
    chunk.row(key, i / 16, t)[i % 16] = golden["rows"][key ? "keys" : "values"][t][i].get<float>();
  });
  ASSERT_EQ(golden["cases"].size(), 4U);
  for (const json& one : golden["cases"]) {
    const auto method = make_method({{"name", "kvtc"}, {"target_cr", one["ratio"]}}, "golden");
    const auto coder = dynamic_cast<const StreamCodecMethod&>(*method).codec().coder(&facts);
    const std::vector<uint8_t> frame = write_frame(*coder, chunk);
    std::span<const uint8_t> stream = frame;
    const KvChunk back = read_frame(*coder, stream);
    int64_t compared = 0;
    each([&](bool key, int64_t t, int64_t i) {
      const json& row = one[key ? "keys" : "values"]["rows"][t];
      if (row.is_null()) return;  // rounding decides
      EXPECT_NEAR(back.row(key, i / 16, t)[i % 16], row[i].get<double>(), 3e-3) << one["ratio"] << " " << t << " " << i;
      ++compared;
    });
    EXPECT_GE(compared, 11 * 32);
  }
}

}  // namespace
}  // namespace kvarena
