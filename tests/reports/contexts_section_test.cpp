// Stored contexts in a report: quantities over the time of the run, and where contexts lie.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/sections.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;

/// A placing method's cell of one load with 20 requests, answered a second apart from the first on.
CellData cell(const std::string& method, float similarity) {
  CellData cell;
  cell.row.state = results::CellState::done;
  cell.row.cell.method = method;
  cell.row.cell.workload = "w";
  cell.row.cell.kind = results::CellKind::serving;
  const std::string point = "load 0.8";
  for (const char* metric : {"served_score", "memory_hits"})
    cell.values[metric] = {.metric = metric, .rows = {{.sample_id = point, .value = similarity}}};
  std::vector<float> at, answers, latency;
  for (int r = 0; r < 20; ++r) {
    at.push_back(r == 5 ? NAN : 1000.0F * static_cast<float>(r));  // the sixth had no answer
    answers.push_back(r == 5 ? 0 : similarity);
    latency.push_back(r == 5 ? NAN : static_cast<float>(r));
  }
  for (const auto& [name, values] :
       {std::pair{"answered_ms", at}, {"answer_similarity", answers}, {"end_to_end_ms", latency}})
    cell.series[name] = {{.sample_id = point, .series = {.name = name, .values = values}}};
  for (const char* tier : {"memory", "memory", "disk"})
    cell.events.push_back(
        {point, {.event = "context_stored", .data_json = json{{"form", "Knorm"}, {"tier", tier}}.dump()}});
  return cell;
}

const Chart& chart(const Section& section, const std::string& id) {
  for (const Chart& each : section.charts) {
    if (each.id == id) return each;
  }
  throw std::runtime_error("no chart " + id);
}

TEST(ContextsSection, DrawsTheTimeOfTheRunWithItsProfilingsAndTheGain) {
  ExperimentData data;
  data.cells = {cell("once", 0.5F), cell("anew", 0.75F)};
  data.cells[1].events.push_back({"load 0.8", {.event = "context_profiled", .at_ms = 12000}});
  const auto section = contexts_section(data);
  ASSERT_TRUE(section);
  const std::string answers = chart(*section, "answers-1").spec;
  EXPECT_NE(answers.find(R"({"series":"anew","x":10.0,"y":0.75})"), std::string::npos) << answers;
  EXPECT_NE(answers.find(R"("values":[{"x":12.0}])"), std::string::npos) << answers;
  // Ten answers end at the eleventh request, since the sixth had none: latencies 0 to 4 and 6 to 10.
  EXPECT_NE(chart(*section, "end-to-end-1").spec.find(R"("x":10.0,"y":5.0)"), std::string::npos);
  EXPECT_NE(chart(*section, "gain-1").spec.find(R"({"series":"anew over once","x":19.0,"y":0.25})"), std::string::npos);
}

TEST(ContextsSection, CountsContextsByFormAndTier) {
  ExperimentData data;
  data.cells = {cell("placing", 0.5F)};
  const auto section = contexts_section(data);
  ASSERT_TRUE(section);
  const std::string spec = chart(*section, "placement-1").spec;
  EXPECT_NE(spec.find(R"("category":"Knorm","part":"disk","value":1.0)"), std::string::npos) << spec;
  EXPECT_NE(spec.find(R"("category":"Knorm","part":"memory","value":2.0)"), std::string::npos) << spec;
}

}  // namespace
}  // namespace kvarena::reports
