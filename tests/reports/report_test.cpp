// A report from real database files.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "reports/compare.h"
#include "reports/experiment_report.h"
#include "reports/report_charts.h"
#include "reports/sections.h"
#include "tests/reports/stored_experiment.h"

namespace kvarena::reports {
namespace {

TEST_F(ReportTest, PairsEveryMethodWithTheBaseline) {
  const auto data = experiment(
      "a.db", {{"full", scores(40, 0.8, 0.1)}, {"lossy", scores(40, 0.6, 0.1)}, {"same", scores(40, 0.8, 0.1)}});
  const Table quality = table(experiment_report(data), "quality");
  ASSERT_EQ(quality.rows.size(), 3U);
  EXPECT_EQ(quality.rows[0].role, RowRole::baseline);
  EXPECT_NEAR(quality.rows[0].cells[1].value, 80, 1e-9);
  EXPECT_FALSE(quality.rows[0].cells[1].difference);
  ASSERT_TRUE(quality.rows[1].cells[1].difference);
  EXPECT_NEAR(quality.rows[1].cells[1].difference->value, -20, 1e-9);
  EXPECT_EQ(quality.rows[1].cells[1].difference->verdict, Verdict::worse);
  EXPECT_EQ(quality.rows[2].cells[1].difference->verdict, Verdict::no_difference);
  ASSERT_TRUE(quality.rows[2].cells[1].difference->detectable);
  EXPECT_NEAR(*quality.rows[2].cells[1].difference->detectable, 3, 1e-9) << "six of 40 samples, 20 points each";
}

TEST_F(ReportTest, FailuresAndIdleMethodsAreOutcomesNotNumbers) {
  const auto data =
      experiment("a.db", {{"full", scores(6, 0.5)},
                          {"idle", scores(6, 0.5), R"({"metrics": "qa_f1 v1", "dtype": "bf16"})", false},
                          {"broken", {}, R"({"metrics": "qa_f1 v1", "dtype": "bf16"})", true, "segfault"}});
  const Document document = experiment_report(data);
  const Table quality = table(document, "quality");
  EXPECT_EQ(quality.rows[1].cells[1].kind, CellKind::inactive);
  EXPECT_EQ(quality.rows[2].cells[1].kind, CellKind::failed);
  EXPECT_EQ(quality.rows[2].cells[1].reason, "segfault");
  EXPECT_EQ(table(document, "outcomes").rows.size(), 2U);
}

TEST_F(ReportTest, RefusesToCompareUnlikeCardsUnlessAsked) {
  const auto data = experiment(
      "a.db", {{"full", scores(6, 0.5)}, {"other", scores(6, 0.5), R"({"metrics": "qa_f1 v1", "dtype": "f32"})"}});
  try {
    (void)experiment_report(data);
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("dtype: bf16 / f32"), std::string::npos) << error.what();
  }
  const Document document = experiment_report(data, {.allow_unlike_cards = true});
  EXPECT_NE(document.introduction.back().find("dtype: bf16 / f32"), std::string::npos);
}

TEST_F(ReportTest, AMethodsPluginIsWhatIsComparedNotAnotherProtocol) {
  const auto of_plugin = [&](const char* file, const char* hash) {
    const std::string card = fmt::format(R"({{"metrics": "qa_f1 v1", "dtype": "bf16", "method_sha256": "{}"}})", hash);
    return experiment(file, {{"full", scores(6, 0.5)}, {"mine", scores(6, 0.5), card}});
  };
  const auto before = of_plugin("a.db", "ab"), after = of_plugin("b.db", "cd");
  EXPECT_FALSE(table(experiment_report(before), "quality").has_badges());
  EXPECT_EQ(compare(before, after, {}).worse, 0);
}

TEST_F(ReportTest, CaptionsSayHowManySamplesWereLeftOut) {
  auto data = experiment("a.db", {{"full", scores(18, 0.9)}, {"lossy", scores(18, 0.7)}});
  EXPECT_EQ(table(experiment_report(data), "quality").caption.find("beyond"), std::string::npos);
  for (CellData& cell : data.cells) {
    cell.row.cell.left_out_samples = 2;
    cell.row.cell.protocol_json = R"({"window": 2048})";
  }
  const std::string said = "facts: 18 of 20 samples; 2 beyond the window of 2048.";
  for (const char* id : {"quality", "memory"}) {
    const std::string caption = table(experiment_report(data), id).caption;
    EXPECT_NE(caption.find(said), std::string::npos) << caption;
    EXPECT_EQ(caption.find(said), caption.rfind(said)) << "once, not for each method";
  }
}

TEST_F(ReportTest, SharesOfCallsAndInstructionsAreOfAllOfThemTogether) {
  for (const auto& [share, counted] :
       std::map<std::string, std::string>{{"exact_call_accuracy", "golden_calls"},
                                          {"ifeval_instruction_strict", "instructions"},
                                          {"ifeval_instruction_loose", "instructions"}}) {
    const ExperimentData data = experiment(
        share + ".db",
        {{.label = "Full KV", .scores = {1.0, 0.5, 0.0}, .metric = share, .counts = {1, 2, 5}, .counted = counted}});
    const std::vector<double> weighed = data.cells.front().numbers(share);
    ASSERT_EQ(weighed.size(), 3U);
    EXPECT_NEAR((weighed[0] + weighed[1] + weighed[2]) / 3, 2.0 / 8, 1e-12) << "two of eight " << counted;
  }
}

TEST_F(ReportTest, PassAtKStandsInATableOfItsOwn) {
  const std::string card = R"({"metrics": "qa_f1 v1", "dtype": "bf16", "draws": 2})";
  const ExperimentData data = experiment("draws.db", {{.label = "full", .scores = {1, 0, 0.5, 1}, .card = card}});
  EXPECT_EQ(table(experiment_report(data), "draws").rows.size(), 1U);
}

TEST_F(ReportTest, NamesTheExperimentsThereAre) {
  (void)experiment("a.db", {{"full", scores(3, 0.9)}});
  try {
    (void)read_experiment(results::ResultsReader(folder_ / "a.db"), "f");
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("one of: e"), std::string::npos) << error.what();
  }
}

TEST_F(ReportTest, ExperimentsShareAPageWithNamesOfTheirOwn) {
  ExperimentData first = experiment("a.db", {{"full", scores(5, 0.8)}, {"lossy", scores(5, 0.6)}});
  ExperimentData second = first;
  second.experiment.experiment = "paper/table 2";
  const Document joined = joined_report("paper", {first, second});
  std::set<std::string> ids;
  for (const Section& section : joined.sections) EXPECT_TRUE(ids.insert(section.id).second) << section.id;
  EXPECT_TRUE(ids.contains("quality-e"));
  EXPECT_TRUE(ids.contains("quality-paper-table-2"));
  EXPECT_NO_THROW((void)table(joined, "distance-paper-table-2"));
  EXPECT_FALSE(render(joined, Format::html).empty());
}

/// Text of the summary, a sentence a line.
std::string summary(const Document& document) {
  for (const Section& section : document.sections) {
    if (section.id == "summary") return fmt::format("{}", fmt::join(section.paragraphs, "\n"));
  }
  return "";
}

MethodScores at_bytes(const std::string& label, double kept, std::vector<double> values) {
  MethodScores method{label, std::move(values)};
  method.kept = kept;
  return method;
}

TEST_F(ReportTest, TheSummaryComesFirstAndSaysWhatEachAmountOfBytesCosts) {
  const Document document = experiment_report(experiment(
      "a.db", {at_bytes("full", 1, scores(40, 0.8, 0.1)), at_bytes("drop", 0.25, scores(40, 0.6, 0.1)),
               at_bytes("worse", 0.26, scores(40, 0.3, 0.1)), at_bytes("alike", 0.25, scores(40, 0.6, 0.1)),
               at_bytes("codec", 0.5, scores(40, 0.8, 0.1)), at_bytes("select", 1.1, scores(40, 0.8, 0.1))}));
  ASSERT_EQ(document.sections.front().id, "summary");
  ASSERT_EQ(document.sections.front().charts.size(), 1U);
  EXPECT_EQ(document.sections.front().charts[0].id, "trade-off");
  const std::string text = summary(document);
  EXPECT_NE(text.find("At a quarter of full KV's bytes, "), std::string::npos) << text;
  EXPECT_NE(text.find("drop costs 20.0 points (20.0 to 20.0)"), std::string::npos) << text;
  EXPECT_NE(text.find("worse costs 50.0 points"), std::string::npos) << text;
  EXPECT_NE(text.find(" is ahead of worse."), std::string::npos) << text;
  EXPECT_NE(text.find("alike and drop cannot be told apart."), std::string::npos) << text;
  EXPECT_NE(text.find("At half of full KV's bytes, codec shows no difference"), std::string::npos) << text;
  EXPECT_NE(text.find("select holds 110% of full KV's bytes and shows no difference"), std::string::npos) << text;
}

TEST_F(ReportTest, OfManyMethodsTheSummaryNamesTheFirstAndTheLast) {
  std::vector<MethodScores> methods = {at_bytes("full", 1, scores(40, 0.8, 0.1))};
  for (int i = 1; i <= 12; ++i)
    methods.push_back(at_bytes(fmt::format("m{}", i), 0.25, scores(40, 0.7 - 0.05 * i, 0.1)));
  const std::string text = summary(experiment_report(experiment("a.db", methods)));
  EXPECT_NE(text.find("m6 costs 40.0 points (40.0 to 40.0); after 5 more, m12 costs 70.0 points"), std::string::npos)
      << text;
  EXPECT_NE(text.find("m1 is ahead of m2, m3, m4, m5, m6, m7 and 5 more."), std::string::npos) << text;
}

TEST_F(ReportTest, LabelsWithCommasAreQuotedInTheSummary) {
  const std::vector<double> alike = scores(40, 0.6, 0.1);
  const std::string text =
      summary(experiment_report(experiment("a.db", {at_bytes("full", 1, scores(40, 0.8, 0.1)),
                                                    at_bytes("H2O, half", 0.5, alike), at_bytes("b", 0.5, alike)})));
  EXPECT_NE(text.find("“H2O, half” costs 20.0 points"), std::string::npos) << text;
  EXPECT_NE(text.find("“H2O, half” and b cannot be told apart"), std::string::npos) << text;
}

TEST_F(ReportTest, BytesStandBesideScoresAndTheBestIsOneOfEqualBytes) {
  const auto data =
      experiment("a.db", {at_bytes("full", 1, scores(40, 0.8, 0.1)), at_bytes("drop", 0.25, scores(40, 0.6, 0.1)),
                          at_bytes("worse", 0.25, scores(40, 0.3, 0.1)), at_bytes("codec", 0.5, scores(40, 0.8, 0.1))});
  const Table quality = table(experiment_report(data), "quality");
  ASSERT_EQ(quality.columns[2].title, "Resident");
  EXPECT_NEAR(quality.rows[1].cells[2].value, 25, 1e-9);
  EXPECT_TRUE(quality.rows[1].cells[1].best);
  EXPECT_FALSE(quality.rows[2].cells[1].best);
  EXPECT_FALSE(quality.rows[3].cells[1].best) << "it is alone at its bytes";
}

TEST_F(ReportTest, AnyMethodMayBeTheBaseline) {
  const auto data =
      experiment("a.db", {{"full", scores(40, 0.8, 0.1)}, {"a", scores(40, 0.6, 0.1)}, {"b", scores(40, 0.7, 0.1)}});
  const Document document = experiment_report(data, {.baseline = "a"});
  const Table quality = table(document, "quality");
  EXPECT_EQ(quality.rows[1].role, RowRole::baseline);
  EXPECT_NEAR(quality.rows[2].cells[1].difference->value, 10, 1e-9);
  EXPECT_EQ(quality.rows[2].cells[1].difference->verdict, Verdict::better);
  EXPECT_NE(quality.caption.find("paired with a on"), std::string::npos);
  try {
    (void)experiment_report(data, {.baseline = "c"});
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("one of: full, a, b"), std::string::npos) << error.what();
  }
}

TEST_F(ReportTest, TheProtocolThatAllRowsShareIsOneLineWithoutHashes) {
  const std::string card = R"({"metrics": "qa_f1 v1", "dtype": "bf16", "max_new_tokens": 12, "data_sha256": "4e3a"})";
  const auto data = experiment("a.db", {{"full", scores(6, 0.5), card}, {"other", scores(6, 0.5), card}});
  const Document document = experiment_report(data);
  const std::string text = render(document, Format::markdown);
  EXPECT_NE(text.find("Protocol of all rows: dtype bf16; max new tokens 12."), std::string::npos) << text;
  EXPECT_FALSE(table(document, "quality").has_badges());
}

TEST_F(ReportTest, AFewSamplesProveNothing) {
  const auto verdict = [&](int64_t samples) {
    const auto data =
        experiment(fmt::format("{}.db", samples), {{"full", scores(samples, 1.0)}, {"lossy", scores(samples, 0.0)}});
    const Table quality = table(experiment_report(data), "quality");
    EXPECT_EQ(quality.rows[1].cells[1].interval.has_value(), samples > 1);
    EXPECT_EQ(quality.rows[1].cells[1].notes.empty(), samples > 5) << "a note says why there is no verdict";
    return quality.rows[1].cells[1].difference->verdict;
  };
  for (const int64_t samples : {1, 4, 5}) EXPECT_EQ(verdict(samples), Verdict::too_few) << samples;
  for (const int64_t samples : {6, 8, 20}) EXPECT_EQ(verdict(samples), Verdict::worse) << samples;
}

TEST_F(ReportTest, ANumberOfOtherSamplesIsMarked) {
  const auto data =
      experiment("a.db", {{"full", scores(20, 0.5)}, {"lossy", scores(20, 0.4)}, {"new", scores(8, 0.4)}});
  const Table quality = table(experiment_report(data), "quality");
  EXPECT_TRUE(quality.rows[1].cells[1].notes.empty());
  ASSERT_EQ(quality.rows[2].cells[1].notes.size(), 1U);
  EXPECT_EQ(quality.footnotes.at(quality.rows[2].cells[1].notes[0]),
            "On 8 samples where full has 20; the difference is over those of both.");
  const Table memory = table(experiment_report(data), "memory");
  ASSERT_EQ(memory.rows[2].cells[0].notes.size(), 1U);
  EXPECT_EQ(memory.footnotes.at(memory.rows[2].cells[0].notes[0]), "Over 8 samples where full has 20.");
}

TEST_F(ReportTest, AnIdleMethodEntersNoTableOfNumbersAndNoChart) {
  const auto data =
      experiment("a.db", {{"full", scores(6, 0.9)},
                          {"lossy", scores(6, 0.6)},
                          {"idle", scores(6, 0.9), R"({"metrics": "qa_f1 v1", "dtype": "bf16"})", false}});
  const Document document = experiment_report(data);
  EXPECT_EQ(table(document, "memory").rows.size(), 2U);
  for (const Section& section : document.sections) {
    for (const Chart& chart : section.charts) EXPECT_EQ(chart.spec.find("idle"), std::string::npos) << chart.id;
  }
}

TEST_F(ReportTest, ModelsStayApart) {
  const std::string card = R"({"metrics": "qa_f1 v1", "dtype": "bf16"})";
  auto data = experiment("a.db", {{"full", scores(20, 0.9)},
                                  {"lossy", scores(20, 0.7)},
                                  {"full", scores(20, 0.5), card, true, "", "n", true},
                                  {"lossy", scores(20, 0.5), card, true, "", "n"}});
  const Table joint = table(experiment_report(data), "quality");
  ASSERT_EQ(joint.rows.size(), 4U) << "models are rows unless the config's table says otherwise";
  EXPECT_EQ(joint.rows[1].cells[0].text + joint.rows[1].cells[1].text, "mlossy");
  EXPECT_NEAR(joint.rows[1].cells[2].difference->value, -20, 1e-9);
  EXPECT_NEAR(joint.rows[3].cells[2].difference->value, 0, 1e-9);
  data.experiment.table_json = R"({"rows": ["method"]})";
  const Document document = experiment_report(data);
  EXPECT_NEAR(table(document, "quality-m").rows[1].cells[1].difference->value, -20, 1e-9);
  EXPECT_NEAR(table(document, "quality-n").rows[1].cells[1].value, 50, 1e-9);
  EXPECT_NEAR(table(document, "quality-n").rows[1].cells[1].difference->value, 0, 1e-9);
  EXPECT_EQ(compare(data, data, {}).same, 4);
}

TEST_F(ReportTest, ProtocolsOfQuestionsStayApartAndEveryCaptionSaysWhich) {
  const std::string card = R"({"metrics": "qa_f1 v1", "question": "seen"})";
  auto data = experiment("a.db", {{"full", scores(20, 0.9), card}, {"lossy", scores(20, 0.7), card}});
  const ExperimentData seen = data;
  const std::vector<std::string> protocols = {"seen", "unseen", "turns", "first_seen"};
  std::map<std::string, double> expected = {{"seen", 90}};
  for (size_t i = 1; i < protocols.size(); ++i) {
    expected[protocols[i]] = 90 - 10.0 * static_cast<double>(i);
    for (CellData cell : seen.cells) {
      cell.row.cell.workload = "calls " + protocols[i];
      std::ranges::find(cell.card, "question", &std::pair<std::string, std::string>::first)->second = protocols[i];
      for (results::ValueRow& score : cell.values.own()["qa_f1"].rows) score.value -= 0.1 * static_cast<double>(i);
      data.cells.push_back(std::move(cell));
    }
  }
  data.experiment.table_json = R"({"rows": ["method"], "average": true})";
  EXPECT_EQ(data.questions(), protocols);
  const Document document = experiment_report(data);
  int64_t tables = 0;
  for (const Section& section : document.sections) {
    for (const Table& one : section.tables) {
      ++tables;
      const size_t place = one.id.find("question-");
      ASSERT_NE(place, std::string::npos) << one.id;
      std::string protocol = one.id.substr(place + 9);
      std::ranges::replace(protocol, '-', '_');
      const std::string said = protocol == "first_seen" ? "Question first seen: " : "Question " + protocol + ": ";
      EXPECT_NE(one.caption.find(said), std::string::npos) << one.caption;
      if (!one.id.starts_with("quality-question-")) continue;
      ASSERT_EQ(one.rows.size(), 2U);
      for (const TableCell& cell : one.rows[0].cells) {
        if (!cell.has_value() || !cell.interval) continue;
        EXPECT_NEAR(cell.value, expected.at(protocol), 1e-9) << "no mean over several";
      }
      expected.erase(protocol);
    }
  }
  EXPECT_TRUE(expected.empty());
  EXPECT_GT(tables, 8);
  EXPECT_NE(table(experiment_report(seen), "quality").caption.find("Question seen"), std::string::npos);
}

TEST_F(ReportTest, ProjectMadeSamplesAreMarkedInEveryTableChartAndFormat) {
  const results::PublishedValue printed{.model = "m",
                                        .workload = "facts",
                                        .method = "full",
                                        .metric = "qa_f1",
                                        .value = 80,
                                        .unit = "percent",
                                        .source = "table 1"};
  const std::string mark = "project-made sample, not LongBench";
  const auto data = experiment("a.db", {{"full", scores(20, 0.8)}, {"lossy", scores(20, 0.6, 0.2)}}, {printed},
                               R"({"origin": "project-made sample", "instead_of": "LongBench"})");
  const Document document = experiment_report(data);
  EXPECT_EQ(document.title, fmt::format("E ({})", mark));
  size_t tables = 0, charts = 0;
  for (const Section& section : document.sections) {
    for (const Table& one : section.tables) {
      ++tables;
      EXPECT_NE(one.caption.find(mark), std::string::npos) << one.id;
      EXPECT_NE(table_latex(one).find(mark), std::string::npos) << one.id;
    }
    for (const Chart& one : section.charts) {
      ++charts;
      EXPECT_NE(one.caption.find(mark), std::string::npos) << one.id;
      EXPECT_NE(nlohmann::json::parse(one.spec)["title"].get<std::string>().find(mark), std::string::npos) << one.id;
    }
  }
  EXPECT_GE(tables, 4U);
  EXPECT_GE(charts, 2U);
  const Table published = table(document, "published");
  EXPECT_EQ(published.rows[0].cells[1].text, "facts (project-made)");
  EXPECT_EQ(published.rows[0].cells[5].kind, CellKind::not_comparable);
  EXPECT_EQ(published.rows[0].cells[7].text, fmt::format("not comparable: {}", mark));
  EXPECT_NE(render(document, Format::csv).find("facts (project-made)"), std::string::npos);
  const auto official = experiment("b.db", {{"full", scores(20, 0.8)}, {"lossy", scores(20, 0.6)}}, {printed},
                                   R"({"origin": "facts.jsonl"})");
  for (const Format format : {Format::html, Format::markdown, Format::latex, Format::csv})
    EXPECT_EQ(render(experiment_report(official), format).find("project-made"), std::string::npos);
}

TEST_F(ReportTest, WithoutDistancesThereIsNoSectionOfThem) {
  MethodScores timed{"full", scores(3, 0.5)};
  timed.kind = results::CellKind::timing;  // the only cell: nothing was answered
  for (const Section& section : experiment_report(experiment("a.db", {timed})).sections) {
    EXPECT_NE(section.id, "distance");
  }
}

TEST_F(ReportTest, AMetricThatNobodyDefinedIsGoodInNeitherDirection) {
  const std::string card = R"({"metrics": "oddity v1"})";
  MethodScores full{"full", scores(30, 2, 0.1), card};
  MethodScores other{"other", scores(30, 3, 0.1), card};
  full.metric = other.metric = "oddity";
  const auto data = experiment("a.db", {full, other});
  EXPECT_EQ(table(experiment_report(data), "quality").rows[1].cells[1].difference->verdict, Verdict::differs);
}

TEST_F(ReportTest, ASecondRunOfFullIsARowAndItsNoiseSwallowsDifferences) {
  MethodScores again{"full", scores(40, 0.8, 0.1)};
  again.kind = results::CellKind::noise_floor;
  const MethodScores lossy{"lossy", scores(40, 0.75, 0.1)};
  const auto exact = experiment("a.db", {{"full", scores(40, 0.8, 0.1)}, again, lossy});
  Table quality = table(experiment_report(exact), "quality");
  ASSERT_EQ(quality.rows.size(), 3U);
  EXPECT_EQ(quality.rows[1].role, RowRole::noise_floor);
  EXPECT_EQ(quality.rows[1].cells[1].difference->value, 0);
  EXPECT_EQ(quality.rows[2].cells[1].difference->verdict, Verdict::worse);
  EXPECT_EQ(table(experiment_report(exact), "sensitivity").rows[0].cells[3].value, 0) << "measured, and nothing";
  EXPECT_EQ(table(experiment_report(exact), "distance").rows[1].role, RowRole::noise_floor);

  again.scores = scores(40, 0.8, 0.2);  // each sample 10 points off, the mean where it was
  const auto noisy = experiment("b.db", {{"full", scores(40, 0.8, 0.1)}, again, lossy});
  quality = table(experiment_report(noisy), "quality");
  EXPECT_EQ(quality.rows[2].cells[1].difference->verdict, Verdict::no_difference);
  EXPECT_NEAR(table(experiment_report(noisy), "sensitivity").rows[0].cells[3].value, 10, 1e-9);
  const auto later = experiment("c.db", {{"full", scores(40, 0.8, 0.1)}, again, {"lossy", scores(40, 0.7, 0.1)}});
  EXPECT_EQ(compare(exact, noisy, {}).same, 2);
  EXPECT_EQ(compare(noisy, later, {}).changed, 1) << "a run that differs from itself by 10 points proves no loss of 5";
  EXPECT_EQ(compare(noisy, later, {}).regressions, 0);
}

TEST_F(ReportTest, OneRowIsNoOtherRowsQuestion) {
  std::vector<double> dipping(20, 0.5);
  std::fill_n(dipping.begin(), 7, 0.3);
  std::vector<MethodScores> methods = {{"full", std::vector<double>(20, 0.5)}};
  for (int i = 0; i < 6; ++i) methods.push_back({"lossy " + std::to_string(i), dipping});
  const Table quality = table(experiment_report(experiment("a.db", methods)), "quality");
  for (size_t row = 1; row < quality.rows.size(); ++row)
    EXPECT_EQ(quality.rows[row].cells[1].difference->verdict, Verdict::worse) << "p = 2/128, whoever else is there";
}

TEST_F(ReportTest, SamplesOfUnequalPromptsAreNoPair) {
  MethodScores other{"other", scores(6, 0.5)};
  other.prompt = "another";
  const auto data = experiment("a.db", {{"full", scores(6, 0.5)}, other});
  try {
    (void)experiment_report(data);
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("facts, other: sample s0: found prompt another0 here and prompt0 in "
                        "facts, full, expected the same prompt"),
              std::string::npos)
        << error.what();
  }
  const Table quality = table(experiment_report(data, {.allow_unlike_cards = true}), "quality");
  EXPECT_EQ(quality.rows[1].cells[1].kind, CellKind::not_comparable);
  const auto same = experiment("b.db", {{"full", scores(6, 0.5)}, {"other", scores(6, 0.5)}});
  EXPECT_THROW((void)compare(same, data, {.allow_unlike = true}), UserError);
}

TEST_F(ReportTest, MarksSayWhereNumbersComeFrom) {
  MethodScores faked{"faked", scores(6, 0.5)};
  faked.storage = results::Storage::simulated;
  MethodScores elsewhere{"elsewhere", scores(6, 0.5)};
  elsewhere.storage = results::Storage::emulated;
  const Document document = experiment_report(experiment("a.db", {{"full", scores(6, 0.5)}, faked, elsewhere}));
  const Table memory = table(document, "memory");
  EXPECT_FALSE(memory.rows[0].cells[2].simulated);
  EXPECT_TRUE(memory.rows[1].cells[2].simulated);
  EXPECT_TRUE(memory.rows[2].cells[2].emulated);
  bool said = false;
  for (const Section& section : document.sections) {
    for (const Chart& chart : section.charts) {
      said = said || chart.caption.find("measured but for faked, elsewhere") != std::string::npos;
    }
  }
  EXPECT_TRUE(said);
}

}  // namespace
}  // namespace kvarena::reports
