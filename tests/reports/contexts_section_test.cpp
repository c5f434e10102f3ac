// Stored contexts in a report: quantities over the time of the run, and where contexts lie.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/protocol_line.h"
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
    cell.values.own()[metric] = {.metric = metric, .rows = {{.sample_id = point, .value = similarity}}};
  std::vector<float> at, answers, latency, first, tokens;
  for (int r = 0; r < 20; ++r) {
    at.push_back(r == 5 ? NAN : 1000.0F * static_cast<float>(r));  // the sixth had no answer
    answers.push_back(r == 5 ? 0 : similarity);
    latency.push_back(r == 5 ? NAN : static_cast<float>(r));
    if (r != 5) first.push_back(static_cast<float>(r) / 2);
    tokens.push_back(r % 4 == 0 ? 900 : 300);
  }
  for (const auto& [name, values] : {std::pair{"answered_ms", at},
                                     {"answer_similarity", answers},
                                     {"end_to_end_ms", latency},
                                     {"time_to_first_token_ms", first},
                                     {"request_tokens", tokens}})
    cell.series.own()[name] = {{.sample_id = point, .series = {.name = name, .values = values}}};
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

TEST(ContextsSection, HasColumnsOfTheDeviceWhereContextsLieThere) {
  ExperimentData data;
  data.cells = {cell("memory alone", 0.5F)};
  const auto titles = [&] {
    int count = 0;
    const auto section = contexts_section(data);
    for (const auto& column : section->tables.front().columns) count += column.title == "on the device" ? 1 : 0;
    for (const TableRow& row : section->tables.front().rows)
      EXPECT_EQ(row.cells.size(), section->tables.front().columns.size());
    return count;
  };
  EXPECT_EQ(titles(), 0);
  data.cells.push_back(cell("device too", 0.5F));
  data.cells[1].values.own()["device_hits"] = {.metric = "device_hits",
                                               .rows = {{.sample_id = "load 0.8", .value = 0.25}}};
  EXPECT_EQ(titles(), 2);
}

TEST(ContextsSection, TellsShortPromptsFromLongOnes) {
  ExperimentData data;
  data.cells = {cell("placing", 0.5F)};
  const auto section = contexts_section(data);
  ASSERT_TRUE(section);
  const auto table = std::ranges::find(section->tables, "context-lengths", &Table::id);
  ASSERT_NE(table, section->tables.end());
  const std::vector<TableCell>& row = table->rows.at(0).cells;
  EXPECT_EQ(row.at(3).value, 300);
  // Requests 0, 4, ..., 16 are long; of the others the sixth has no answer.
  EXPECT_EQ(row.at(5).value, (190 - 40 - 5) / 2.0 / 14);
  EXPECT_EQ(row.at(7).value, 40 / 2.0 / 5);
  EXPECT_EQ(row.at(4).value, 0.5);
  // Ten answers end at the eleventh request.
  EXPECT_NE(chart(*section, "first-token-1").spec.find(R"("x":10.0,"y":2.5)"), std::string::npos);
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

TEST(ContextsSection, EveryCaptionSaysWhatIsAskedAndHowOften) {
  ExperimentData data;
  data.cells = {cell("once", 0.5F), cell("anew", 0.75F)};
  for (CellData& each : data.cells)
    each.row.cell.engine_json = R"({"contexts": {"questions": "", "popularity": 0, "past_requests": 60}})";
  auto sentences = contexts_section(data);
  ASSERT_TRUE(sentences);
  caption_asking(*sentences, data);
  std::vector<std::string> captions;
  for (const Table& table : sentences->tables) captions.push_back(table.caption);
  for (const Chart& each : sentences->charts) captions.push_back(each.caption);
  ASSERT_GT(captions.size(), 4U);
  for (const std::string& caption : captions) {
    EXPECT_NE(caption.find("half a sentence of the context to complete"), std::string::npos) << caption;
    EXPECT_NE(caption.find("asked about alike, 60 times before"), std::string::npos) << caption;
  }
  for (CellData& each : data.cells)
    each.row.cell.engine_json = R"({"contexts": {"questions": "q.jsonl", "popularity": 1.5, "popularity_shift": 3}})";
  sentences = contexts_section(data);
  caption_asking(*sentences, data);
  const std::string file = sentences->tables.front().caption;
  EXPECT_NE(file.find("Questions: of q.jsonl. Contexts are asked about in proportion to their rank to the power of "
                      "-1.5, their ranks 3 further halfway, from the first request on."),
            std::string::npos)
      << file;
}

TEST(ContextsSection, PicksTheFastestSettingOfEachMethodThatReachesTheTarget) {
  struct Setting {
    const char* label;
    const char* settings;
    double score, first_ms;
  };
  ExperimentData data;
  for (const Setting& one : {Setting{"SnapKV 0.2", R"({"compress":{"name":"snapkv","keep":0.2}})", 0.7, 10},
                             Setting{"SnapKV 0.6", R"({"compress":{"name":"snapkv","keep":0.6}})", 0.85, 30},
                             Setting{"SnapKV 0.8", R"({"compress":{"name":"snapkv","keep":0.8}})", 0.9, 40},
                             Setting{"Knorm 0.8", R"({"compress":"knorm"})", 0.5, 5}}) {
    CellData each = cell(one.label, static_cast<float>(one.score));
    each.row.cell.method_name = "lru";
    each.row.cell.settings_json = one.settings;
    each.row.cell.engine_json = R"({"score_share": 0.8})";
    for (const char* metric : {"mean_time_to_first_token_ms", "mean_inter_token_latency_ms"})
      each.values.own()[metric] = {.metric = metric, .rows = {{.sample_id = "load 0.8", .value = one.first_ms}}};
    data.cells.push_back(std::move(each));
  }
  const auto section = contexts_section(data);
  ASSERT_TRUE(section);
  const auto table = std::ranges::find(section->tables, "quality-target", &Table::id);
  ASSERT_NE(table, section->tables.end());
  ASSERT_EQ(table->rows.size(), 1U) << "Knorm reaches it with none";
  EXPECT_EQ(table->rows[0].cells[2].text, "snapkv + lru");
  EXPECT_EQ(table->rows[0].cells[3].text, "SnapKV 0.6");
  EXPECT_EQ(table->rows[0].cells[4].value, 30);
  data.cells.resize(1);
  const std::optional<Section> alone = contexts_section(data);
  ASSERT_TRUE(alone);
  for (const Table& each : alone->tables) EXPECT_NE(each.id, "quality-target") << "one setting alone";
}

}  // namespace
}  // namespace kvarena::reports
