#include "harness/experiment/workers/message.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/random.h"
#include "harness/experiment/workers/wire.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;

TEST(Message, ArrivesWholeHoweverItIsCut) {
  const json first = {{"ask", "evaluate"}, {"list", {1, 2.5, nullptr, "text"}}};
  const json second = "another";
  const std::string stream = frame(first) + frame(second);
  for (size_t piece = 1; piece <= stream.size(); piece += 3) {
    FrameReader reader;
    std::vector<json> seen;
    for (size_t i = 0; i < stream.size(); i += piece) {
      reader.append(std::string_view(stream).substr(i, piece));
      while (auto message = reader.next()) seen.push_back(*message);
    }
    EXPECT_EQ(seen, (std::vector<json>{first, second})) << piece;
  }
}

TEST(Message, BytesThatAreNoMessageAreRefusedAndNeverCrash) {
  const uint64_t seed = 20261121;
  const RandomStream random(seed, "bytes");
  int refused = 0;
  for (uint64_t trial = 0; trial < 3000; ++trial) {
    const uint64_t length = random.below(60, trial * 100);
    std::string bytes = frame(nullptr).substr(0, 8);
    bytes[0] = static_cast<char>(length);
    for (uint64_t i = 0; i < length; ++i) bytes += static_cast<char>(random.below(256, trial * 100 + 1 + i));
    FrameReader reader;
    reader.append(bytes);
    try {
      (void)reader.next();
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000) << "seed " << seed;
  FrameReader reader;
  reader.append(std::string(16, '\xff'));
  EXPECT_THROW((void)reader.next(), UserError) << "a length beyond any message";
}

TEST(Message, NestingThatWouldExhaustTheStackIsRefused) {
  for (const char* opening : {"\x81", "\x9f", "\xa1\x61\x61"}) {
    std::string bytes;
    for (int i = 0; i < 2000000; ++i) bytes += opening;
    std::string framed = frame(nullptr).substr(0, 8);
    for (size_t i = 0; i < 8; ++i) framed[i] = static_cast<char>(bytes.size() >> (8 * i) & 0xFFU);
    FrameReader reader;
    reader.append(framed + bytes);
    EXPECT_THROW((void)reader.next(), UserError);
  }
}

TEST(Message, AVerdictArrivesBitForBit) {
  experiment::SampleOutcome sent;
  results::SampleResult& result = sent.result;
  result.prompt_sha256 = "ab";
  result.context = "report 3";
  result.prompt_tokens = 7;
  result.truncated_tokens = 2;
  result.output_tokens = 3;
  result.prediction = "no UTF-8: \xff\xc3, and a zero: " + std::string(1, '\0') + ".";
  result.references_json = R"(["x"])";
  result.finish_reason = "stop";
  result.active = false;
  result.activity_json = R"({"dropped":4})";
  result.wall_s = 0.1;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {0.1, -0.0, 1e-310, 1e300, infinity, nan}) {
    result.values.push_back({.metric = fmt::format("m{}", result.values.size()),
                             .value = value,
                             .unit = "ms",
                             .clock = results::Clock::modelled,
                             .storage = results::Storage::emulated});
  }
  result.series.push_back({.name = "kl_nats", .values = {0.1F, std::numeric_limits<float>::quiet_NaN(), 1e-42F}});
  result.events = {{.event = "round", .at_ms = 1.5, .data_json = "{}"}, {.event = "move", .at_ms = std::nullopt}};
  result.peak_bytes = {{"device", 1}, {"host", int64_t{1} << 40}};

  FrameReader reader;
  reader.append(frame(outcome_json(sent)));
  const experiment::SampleOutcome read = read_outcome(*reader.next());
  const results::SampleResult& got = read.result;
  EXPECT_EQ(read.failure, "");
  EXPECT_EQ(got.prediction, result.prediction);
  EXPECT_EQ(got.context, "report 3");
  EXPECT_EQ(got.references_json, result.references_json);
  EXPECT_EQ(got.activity_json, result.activity_json);
  EXPECT_EQ(got.finish_reason, "stop");
  EXPECT_EQ(got.prompt_tokens + 10 * got.truncated_tokens + 100 * got.output_tokens, 327);
  EXPECT_FALSE(got.active);
  EXPECT_EQ(got.wall_s, 0.1);
  EXPECT_EQ(got.peak_bytes, result.peak_bytes);
  ASSERT_EQ(got.values.size(), result.values.size());
  for (size_t i = 0; i < got.values.size(); ++i) {
    EXPECT_EQ(got.values[i].metric, result.values[i].metric);
    EXPECT_EQ(got.values[i].clock, results::Clock::modelled);
    EXPECT_EQ(got.values[i].storage, results::Storage::emulated);
    const bool same = std::bit_cast<uint64_t>(got.values[i].value) == std::bit_cast<uint64_t>(result.values[i].value);
    EXPECT_TRUE(same || (std::isnan(got.values[i].value) && std::isnan(result.values[i].value))) << i;
  }
  ASSERT_EQ(got.series.size(), 1U);
  EXPECT_EQ(got.series[0].values[0], 0.1F);
  EXPECT_TRUE(std::isnan(got.series[0].values[1]));
  EXPECT_EQ(got.series[0].values[2], 1e-42F);
  ASSERT_EQ(got.events.size(), 2U);
  EXPECT_EQ(got.events[0].at_ms, 1.5);
  EXPECT_FALSE(got.events[1].at_ms.has_value());

  reader.append(frame(outcome_json({.failure = "why"})));
  EXPECT_EQ(read_outcome(*reader.next()).failure, "why");
}

TEST(Message, ATaskWhoseCountsAreNoneIsRefused) {
  const experiment::ExperimentConfig config{.models = {{.name = "m", .label = "m"}},
                                            .workloads = {{.name = "w", .label = "w"}},
                                            .methods = {{.name = "full", .label = "full"}}};
  const experiment::PlannedCell cell{.record = {.method = "full", .position = 4, .planned_samples = 2},
                                     .method = &config.methods[0]};
  const experiment::PlannedCell* cells = &cell;
  json task = task_json({.model = config.models[0],
                         .workload = config.workloads[0],
                         .kind = results::CellKind::quality,
                         .sample_id = "s",
                         .sample_index = 7,
                         .cells = {&cells, 1}});
  const ReceivedTask received = read_task(task, config);
  EXPECT_EQ(received.sample_index, 7);
  EXPECT_EQ(received.cells.at(0).record.position, 4);
  task["sample_index"] = 1e300;
  EXPECT_THROW((void)read_task(task, config), json::exception);
}

}  // namespace
}  // namespace kvarena::experiment
