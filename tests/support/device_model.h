#pragma once
// Passes of a small model on a device, and what is asked of their logits.

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/core/error.h"
#include "harness/device/device_model.h"
#include "kernels/cuda/device.h"
#include "tests/support/spread_layers.h"
#include "tests/support/tiny_model.h"

namespace kvarena::device {

using Lists = std::vector<std::vector<int32_t>>;

class DeviceModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = kernels::cuda_absent();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

inline constexpr TransformerOptions kBf16{.weights = kernels::DType::bf16, .cache = kernels::DType::bf16};
inline constexpr TransformerOptions kF32{.weights = kernels::DType::f32, .cache = kernels::DType::f32};

inline DeviceModel tiny(const TransformerOptions& options = kBf16) {
  const ModelConfig config = testing::tiny_config();
  return {config, testing::RandomCheckpoint(testing::llama_tensors(config), 1), options, spread_layers(config.layers)};
}

inline std::vector<float> copied(std::span<const float> logits) { return {logits.begin(), logits.end()}; }

/// One sequence's pass; logits of all its tokens.
inline std::vector<float> feed(DeviceModel& model, DeviceCache& cache, std::span<const int32_t> tokens,
                               const Lists* attended = nullptr) {
  const DevicePass pass{.tokens = tokens, .cache = &cache, .logits = LogitsRows::all, .attended = attended};
  return copied(model.download(model.forward({&pass, 1})));
}

inline void expect_same_bits(std::span<const float> got, std::span<const float> want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << what << ": logit " << i << ": " << got[i] << " and " << want[i];
  }
}

/// The last `rows` rows of a vocabulary of 128.
inline std::span<const float> last_rows(const std::vector<float>& logits, size_t rows) {
  return std::span(logits).last(rows * 128);
}

inline std::vector<int32_t> range(int32_t begin, int32_t end, int32_t step = 1) {
  std::vector<int32_t> numbers;
  for (int32_t i = begin; i < end; i += step) numbers.push_back(i);
  return numbers;
}

/// Message of the UserError that `act` throws.
inline std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace kvarena::device
