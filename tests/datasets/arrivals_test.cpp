#include "datasets/arrivals.h"

#include <cmath>

#include "tests/datasets/support.h"

namespace kvarena::datasets {
namespace {

std::vector<Arrival> read_all(const std::filesystem::path& path) {
  ArrivalReader reader(path);
  std::vector<Arrival> arrivals;
  while (auto arrival = reader.next()) arrivals.push_back(std::move(*arrival));
  return arrivals;
}

TEST(Timestamp, ReadsSevenDigitsZonesAndNone) {
  EXPECT_EQ(parse_timestamp("1970-01-02 00:00:01"), 86401.0);
  EXPECT_NEAR(*parse_timestamp("2023-11-16 18:17:03.9799600"), 1700158623.97996, 1e-6);  // date -u +%s
  EXPECT_NEAR(*parse_timestamp("2024-05-10 00:00:00.009930+00:00"), 1715299200.00993, 1e-6);
  EXPECT_EQ(*parse_timestamp("2024-05-10 02:00:00+02:00"), 1715299200.0);
  EXPECT_EQ(*parse_timestamp("2024-02-29 00:00:00"), 1709164800.0);
  for (const char* bad : {"", "2023-11-16", "2023-11-16T18:17:03", "2023-11-16 18:17:xx", "2023-11-16 18:17:03,5"}) {
    EXPECT_FALSE(parse_timestamp(bad)) << bad;
  }
}

TEST(Arrivals, AzureTracesCountFromTheirFirstRequest) {
  const TemporaryFile file("azure.csv",
                           "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n"
                           "2023-11-16 18:17:04.0319600,3180,8\r\n");
  const auto arrivals = read_all(file.path());
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[0].time_s, 0.0);
  EXPECT_NEAR(arrivals[1].time_s, 0.052, 1e-6);
  EXPECT_EQ(arrivals[1].prompt_tokens, 3180);
  EXPECT_EQ(arrivals[1].output_tokens, 8);
}

TEST(Arrivals, BurstGptLeavesFailuresOut) {
  const TemporaryFile file("burst.csv",
                           "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                           "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n"
                           "118,GPT-4,417,276,693,Conversation log\n");
  const auto arrivals = read_all(file.path());
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[1].time_s, 113.0);
}

TEST(Arrivals, MooncakeCarriesTheBlocksOfThePrompt) {
  const TemporaryFile file(
      "mooncake.jsonl",
      "{\"timestamp\": 3000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [0, 7]}\n"
      "{\"timestamp\": 4500, \"input_length\": 900, \"output_length\": 6, \"hash_ids\": [0, 8]}\n");
  const auto arrivals = read_all(file.path());
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[1].time_s, 1.5);
  EXPECT_EQ(arrivals[1].blocks, (std::vector<int64_t>{0, 8}));
}

TEST(Arrivals, ErrorsNameFileAndLine) {
  const TemporaryFile wrong("wrong.csv", "a,b,c\n1,2,3\n");
  EXPECT_NE(error_of([&] { ArrivalReader reader(wrong.path()); }).find("wrong.csv:1: found a,b,c"), std::string::npos);
  const TemporaryFile bad("bad.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,many,10\n");
  EXPECT_NE(error_of([&] { (void)read_all(bad.path()); }).find("bad.csv:2: found "), std::string::npos);
  EXPECT_FALSE(error_of([] { ArrivalReader reader("/no/such.csv"); }).empty());
}

TEST(Arrivals, OfficialTracesThatArePresentReadToTheirEnd) {
  const auto data = shared_data();
  if (!std::filesystem::exists(data / "mooncake")) GTEST_SKIP() << "no traces at " << data;
  EXPECT_EQ(read_all(data / "mooncake" / "conversation_trace.head.jsonl").size(), 2500u);
  EXPECT_EQ(read_all(data / "azure-llm-2023" / "AzureLLMInferenceTrace_conv.head.csv").size(), 14500u);
  double last = 0;
  for (const Arrival& arrival : read_all(data / "azure-llm-2023" / "AzureLLMInferenceTrace_code.head.csv")) {
    EXPECT_GE(arrival.time_s, last);
    last = arrival.time_s;
  }
  EXPECT_GT(last, 60.0);
}

TEST(Poisson, HasTheWantedRateAndStartsAtZero) {
  const auto times = poisson_arrivals(4.0, 20001, 1);
  EXPECT_EQ(times[0], 0.0);
  // 20000 exponential gaps: mean 0.25 s with a standard error of 0.25 / sqrt(20000) = 0.0018
  EXPECT_NEAR(times.back() / 20000, 0.25, 5 * 0.0018);
  for (size_t i = 1; i < times.size(); ++i) ASSERT_GE(times[i], times[i - 1]);
  EXPECT_EQ(times, poisson_arrivals(4.0, 20001, 1));
  EXPECT_NE(times, poisson_arrivals(4.0, 20001, 2));
}

TEST(Gamma, HasTheRateAndTheSpreadOfItsShape) {
  for (const double shape : {0.25, 1.0, 4.0}) {
    SCOPED_TRACE(shape);
    const auto times = gamma_arrivals(4.0, shape, 20001, 1);
    EXPECT_EQ(times[0], 0.0);
    double squares = 0;
    for (size_t i = 1; i < times.size(); ++i) {
      ASSERT_GE(times[i], times[i - 1]);
      squares += (times[i] - times[i - 1] - 0.25) * (times[i] - times[i - 1] - 0.25);
    }
    // Gaps of mean 1/4 and standard deviation 1/4/sqrt(shape); of their variance the error grows with the kurtosis.
    EXPECT_NEAR(times.back() / 20000, 0.25, 5 * 0.25 / std::sqrt(20000 * shape));
    const double variance = 0.0625 / shape;
    EXPECT_NEAR(squares / 20000, variance, 5 * variance * std::sqrt((2 + 6 / shape) / 20000));
    EXPECT_EQ(times, gamma_arrivals(4.0, shape, 20001, 1));
    EXPECT_NE(times, gamma_arrivals(4.0, shape, 20001, 2));
  }
}

}  // namespace
}  // namespace kvarena::datasets
