#include "harness/experiment/provenance.h"

#include <gtest/gtest.h>

#include "harness/experiment/cpu_info.h"
#include "tests/harness/experiment/support.h"

namespace kvarena::experiment {
namespace {

TEST(CpuInfo, ReadsX86) {
  const CpuInfo info = parse_cpu_info(
      "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz\n"
      "flags\t\t: fpu vme avx2 bmi2 avx512f fma amx_bf16 avx512_bf16 f16c\n\nprocessor\t: 1\nmodel name\t: another\n"
      "flags\t\t: fpu sve\n");
  EXPECT_EQ(info.model, "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz");
  EXPECT_EQ(info.features, "avx2 fma f16c avx512f avx512_bf16 amx_bf16");
}

TEST(CpuInfo, ReadsArmAndBearsNonsense) {
  EXPECT_EQ(parse_cpu_info("processor\t: 0\nFeatures\t: fp asimd sve bf16\n").features, "asimd bf16 sve");
  EXPECT_EQ(parse_cpu_info("").model, "unknown");
  EXPECT_EQ(parse_cpu_info(":\n: :\nflags:\nmodel name\n\x01\n").features, "");
}

TEST(Provenance, SaysWhereNumbersAreMade) {
  const results::RunRecord run = collect_provenance();
  EXPECT_TRUE(run.git_revision == "unknown" ||
              run.git_revision.find_first_not_of("0123456789abcdef-dirty") == std::string::npos)
      << run.git_revision;
  const auto build = nlohmann::json::parse(run.build_json);
  EXPECT_FALSE(build["compiler"].get<std::string>().empty());
  EXPECT_TRUE(build.contains("flags"));
  EXPECT_FALSE(run.host.empty());
  EXPECT_EQ(run.kernel.rfind("Linux ", 0), 0U);
  EXPECT_GE(run.cpu_threads, 1);
  const auto libraries = nlohmann::json::parse(run.libraries_json);
  EXPECT_EQ(libraries["sqlite"].get<std::string>().rfind("3.", 0), 0U);
  EXPECT_TRUE(libraries.contains("fmt"));
}

}  // namespace
}  // namespace kvarena::experiment
