// Measured errors of packing, against known errors of the formats.

#include "harness/engine/session/packing.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using namespace testing;

class PackingTest : public ::testing::Test {
 protected:
  Packing measure(const json& spec) {
    const auto method = make_method(spec, "test");
    const Prefill prompt = prefill(model_, tiny_prompt(256), method->needs());
    return measure_packing(model_, prompt, *method, 1);
  }
  Transformer model_ = tiny_model();
};

TEST_F(PackingTest, BitsAreThoseOfTheFormats) {
  for (const int bits : {8, 4, 2}) {
    // Groups of 32 with a scale and a zero point of 16 bits each; the rest of the prompt stays as it is.
    const Packing kivi = measure({{"name", "kivi"}, {"bits", bits}, {"group_size", 32}, {"residual_length", 32}});
    EXPECT_NEAR(kivi.size.bits_per_number(), bits + 1, 0.02 * (bits + 1)) << bits;
    EXPECT_GT(kivi.size.numbers, 0);
    EXPECT_GT(kivi.encode_seconds, 0);
    EXPECT_GT(kivi.decode_seconds, 0);
  }
  EXPECT_NEAR(measure({{"name", "ggml_types"}}).size.bits_per_number(), 8.5, 0.17);
  EXPECT_NEAR(measure({{"name", "ggml_types"}, {"type_k", "q4_0"}, {"type_v", "q4_0"}}).size.bits_per_number(), 4.5,
              0.09);
}

/// A uniform quantiser's error falls sixteenfold with two more bits, and no number is off by more than its group's
/// range.
TEST_F(PackingTest, ErrorsFallWithBits) {
  Packing before = measure({{"name", "kivi"}, {"bits", 2}});
  for (const int bits : {4, 8}) {
    const Packing now = measure({{"name", "kivi"}, {"bits", bits}});
    const double ratio = bits == 4 ? 25.0 : 289.0;  // of squared steps: (2^b' - 1)^2 / (2^b - 1)^2
    EXPECT_NEAR(before.key_error / now.key_error, ratio, 0.3 * ratio) << bits;
    EXPECT_NEAR(before.value_error / now.value_error, ratio, 0.3 * ratio) << bits;
    before = now;
  }
}

TEST_F(PackingTest, AStreamIsComparedAfterDecoding) {
  const Packing stream = measure({{"name", "cachegen"}});
  EXPECT_GT(stream.size.bits_per_number(), 1);
  EXPECT_LT(stream.size.bits_per_number(), 8);
  EXPECT_EQ(stream.size.numbers, 2 * 256 * tiny_config().layers * tiny_config().kv_heads * tiny_config().head_dim);
  for (const double error : {stream.key_error, stream.value_error}) {  // entries of other positions would give about 2
    EXPECT_GT(error, 0);
    EXPECT_LT(error, 0.05);
  }
}

TEST_F(PackingTest, RefusesWhatPacksNothing) {
  EXPECT_FALSE(is_codec(*make_method(json{{"name", "snapkv"}, {"keep", 0.5}}, "test")));
  EXPECT_TRUE(is_codec(*make_method(json{{"name", "kivi"}}, "test")));
  EXPECT_TRUE(is_codec(*make_method(json{{"name", "cachegen"}}, "test")));
  EXPECT_THROW((void)measure({{"name", "snapkv"}, {"keep", 0.5}}), UserError);
  EXPECT_THROW((void)measure({{"name", "kivi"}, {"residual_length", 1024}}), UserError);  // all of it stays
}

}  // namespace
}  // namespace kvarena
