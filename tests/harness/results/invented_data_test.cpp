#include "harness/results/invented_data.h"

#include <gtest/gtest.h>

namespace kvarena::results {
namespace {

RunInput data(const std::string& workload, const std::string& detail) {
  return {.kind = "data", .name = workload, .detail_json = detail, .model = "m"};
}

TEST(InventedData, AreInputsOfProjectMadeSamples) {
  const std::vector<RunInput> inputs = {
      data("qasper", R"({"origin": "project-made sample", "instead_of": "LongBench qasper"})"),
      data("needle", R"({"origin": "generated"})"),
      data("hotpotqa", R"({"origin": "hotpotqa.jsonl"})"),
      data("old", R"({"of": "the first sample", "origin": "project-made sample"})"),
      data("odd", "no JSON"),
      {.kind = "model", .name = "m.gguf", .detail_json = R"({"origin": "project-made sample"})"}};
  const std::vector<InventedData> found = invented_data(inputs);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], (InventedData{.model = "m", .workload = "qasper", .instead_of = "LongBench qasper"}));
  EXPECT_EQ(found[1].instead_of, "old") << "of a run that did not say";
}

TEST(InventedData, AreMarkedByWhatTheirBenchmarksNamesShare) {
  const auto mark = [](const std::vector<std::string>& names) {
    std::vector<InventedData> list;
    for (const std::string& name : names) list.push_back({.model = "m", .workload = name, .instead_of = name});
    return invented_mark(list);
  };
  EXPECT_EQ(mark({}), "");
  EXPECT_EQ(mark({"LongBench qasper"}), "project-made sample, not LongBench qasper");
  EXPECT_EQ(mark({"LongBench qasper", "LongBench qmsum"}), "project-made sample, not LongBench");
  EXPECT_EQ(mark({"LongBench qasper", "LongBench v2", "LongBench"}), "project-made sample, not LongBench");
  EXPECT_EQ(mark({"LongBench qasper", "GSM8K", "LongBench-E qasper"}),
            "project-made sample, not LongBench qasper or GSM8K or LongBench-E qasper");
}

}  // namespace
}  // namespace kvarena::results
