#include "harness/cost_model/calibration.h"

#include <gtest/gtest.h>

#include "harness/core/error.h"
#include "harness/cost_model/acceptance_file.h"

namespace kvarena::cost_model {
namespace {

ModelShape smollm() {
  return read_shape(std::filesystem::path(KVARENA_SOURCE_DIR) / "configs" / "shapes" / "smollm2-135m.json");
}

/// A machine that reads 20 GB/s and does 100 GFLOP/s, of which a program reaches 0.8 and 0.5, exactly.
/// SmolLM2 reads 134,515,008 weights a step and 11,520 numbers (23,040 bytes) a cached token.
constexpr const char* kBench = R"({"context": {"num_cpus": 2}, "benchmarks": [
  {"name": "decode_bench/f32/depth:0/sequences:1/real_time", "run_type": "iteration", "real_time": 33.628752,
   "time_unit": "ms", "read_GB/s": 20, "of_read": 0.8, "tokens/s": 29.7},
  {"name": "decode_bench/bf16/depth:0/sequences:1/real_time", "run_type": "iteration", "real_time": 16.814376,
   "time_unit": "ms", "read_GB/s": 20, "of_read": 0.8},
  {"name": "decode_bench/bf16/depth:8192/sequences:1/real_time", "run_type": "iteration", "real_time": 28.610856,
   "time_unit": "ms", "read_GB/s": 20},
  {"name": "decode_bench/bf16/depth:2048/sequences:16/real_time", "run_type": "iteration", "real_time": 64.000296,
   "time_unit": "ms", "read_GB/s": 20},
  {"name": "prefill_bench/bf16/tokens:512/real_time", "run_type": "iteration", "real_time": 2.6, "time_unit": "s",
   "flops": 5e10, "of_fma": 0.5},
  {"name": "decode_bench/bf16/depth:8192/sequences:1/real_time_mean", "run_type": "aggregate", "real_time": 1,
   "time_unit": "ms", "read_GB/s": 20},
  {"name": "attend_decode/smol / f32/4096/1", "run_type": "iteration", "real_time": 1, "time_unit": "us"},
  {"name": "decode_bench/f32/depth:2048/sequences:1", "error_occurred": true, "error_message": "no model"}]})";

TEST(Calibration, RowsOfTheBackendAreReadAndOthersLeftOut) {
  const std::vector<BenchRow> rows = parse_bench(kBench, "bench.json");
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].weight_bits, 32);
  EXPECT_EQ(rows[3].tokens, 2048);
  EXPECT_EQ(rows[3].sequences, 16);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 33.628752e-3);
  EXPECT_FALSE(rows[4].decode);
  EXPECT_DOUBLE_EQ(rows[4].peak_flop_per_second, 1e11);
}

TEST(Calibration, SharesComeFromTheWeightsAloneAndTheRestIsPredicted) {
  const Calibration found = calibrate(parse_bench(kBench, "bench.json"), smollm(), "bench.json");
  EXPECT_NEAR(found.efficiency.memory, 0.8, 1e-6);
  EXPECT_TRUE(found.efficiency.source.starts_with("measured: bench.json")) << found.efficiency.source;
  EXPECT_TRUE(found.rows[0].calibrating);
  EXPECT_FALSE(found.rows[2].calibrating);
  EXPECT_NEAR(found.rows[2].error(), 0, 1e-6);  // 269,030,016 + 8192 x 23,040 bytes at 16 GB/s
  EXPECT_NEAR(found.rows[3].error(), 0, 1e-6);
  EXPECT_NEAR(found.rows[4].error(), 0, 1e-9);  // taken from it
  EXPECT_NEAR(found.median_error(), 0, 1e-6);

  EXPECT_EQ(found.by_weight_bits.size(), 2u);
  EXPECT_NEAR(found.by_weight_bits.at(32).memory, 0.8, 1e-6);

  const Hardware machine = calibrated_machine(found, 8.0 * 1024 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(machine.memory_gib.value, 8);
  EXPECT_DOUBLE_EQ(machine.memory_bytes_per_second(), 20e9);
  EXPECT_DOUBLE_EQ(machine.flop_per_second(), 1e11);
}

TEST(Calibration, EachWidthOfWeightsHasItsOwnShares) {
  const std::vector<BenchRow> rows = {
      {.weight_bits = 32, .tokens = 0, .seconds = 538'060'032 / 10e9, .read_bytes_per_second = 10e9},
      {.weight_bits = 16, .tokens = 0, .seconds = 269'030'016 / 5e9, .read_bytes_per_second = 10e9},
      {.weight_bits = 16, .tokens = 8192, .seconds = 457'773'696 / 5e9, .read_bytes_per_second = 10e9},
      {.decode = false, .tokens = 512, .seconds = 10, .peak_flop_per_second = 1e11}};
  const Calibration found = calibrate(rows, smollm(), "x.json");
  EXPECT_NEAR(found.by_weight_bits.at(32).memory, 1, 1e-9);
  EXPECT_NEAR(found.by_weight_bits.at(16).memory, 0.5, 1e-9);
  EXPECT_NEAR(found.efficiency.memory, 0.75, 1e-9);
  EXPECT_NEAR(found.rows[2].error(), 0, 1e-9);
}

TEST(Calibration, WhatIsNoBenchmarkIsRefused) {
  for (const char* text : {"{}", R"({"benchmarks": [{"name": "other", "real_time": 1}]})", "[]"}) {
    EXPECT_THROW((void)parse_bench(text, "x.json"), UserError) << text;
  }
  const std::vector<BenchRow> decode_only = {{.tokens = 0, .seconds = 1, .read_bytes_per_second = 1e9}};
  EXPECT_THROW((void)calibrate(decode_only, smollm(), "x.json"), UserError);
}

TEST(AcceptanceFile, CurvesBySharesKept) {
  const AcceptanceFile file = parse_acceptance(
      R"({"source": "a run", "curves": [{"keep": 0.25, "points": [{"draft_length": 10, "rate": 0.9}]},
                                        {"keep": 0.25, "drafter": "b", "independent": 0.99, "max_draft_length": 5},
                                        {"keep": 0.5, "independent": 1, "max_draft_length": 4}]})",
      "a.json");
  EXPECT_EQ(file.choices().kept, (std::vector<double>{0.25, 0.5}));
  EXPECT_EQ(file.choices().draft_lengths.size(), 10u);
  EXPECT_DOUBLE_EQ(file.best(10, 0.25)->acceptance.rate(10), 0.9);
  EXPECT_EQ(file.best(3, 0.25)->drafter, "b") << "which accepts more";
  EXPECT_DOUBLE_EQ(file.best(4, 0.5)->acceptance.rate(4), 1);
  EXPECT_EQ(file.best(5, 0.5), nullptr) << "beyond the curve";
}

TEST(AcceptanceFile, MistakesAreTold) {
  const auto problem = [](const char* text) -> std::string {
    try {
      (void)parse_acceptance(text, "a.json");
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(problem("{}").find("a.json.curves"), std::string::npos);
  EXPECT_NE(problem(R"({"curves": [{"keep": 0.5}]})").find("neither \"independent\" nor \"points\""),
            std::string::npos);
  EXPECT_NE(problem(R"({"curves": [{"keep": 2, "independent": 0.5}]})").find("a.json.curves[0].keep: found 2"),
            std::string::npos);
  EXPECT_NE(problem(R"({"curves": [{"keep": 0.5, "points": [{"draft_length": 1, "rate": 1.5}]}]})")
                .find("a.json.curves[0].points[0].rate: found 1.5"),
            std::string::npos);
}

}  // namespace
}  // namespace kvarena::cost_model
