// kvarena report and compare: what they refuse. Whole reports are made by tests/end_to_end and checked by
// tests/reports.

#include <gtest/gtest.h>

#include <fstream>

#include "tests/harness/cli/check.h"

namespace kvarena::testing {
namespace {

TEST(Report, WithoutAUsableDatabaseNothingIsWritten) {
  const ScratchFolder scratch;
  std::ofstream(scratch / "notes.db") << "not a database, but somebody's notes";
  const std::string out = (scratch / "report.html").string();
  for (const std::string& database : {(scratch / "absent.db").string(), (scratch / "notes.db").string()}) {
    expect_refused(run_kvarena({"report", "--database", database, "--out", out}), database);
    expect_refused(run_kvarena({"compare", database, database}), database);
  }
  expect_refused(run_kvarena({"report", "--out", out}), "--database: found nothing");
  expect_refused(run_kvarena({"compare", "one.db"}), "AFTER: found nothing");
  EXPECT_EQ(scratch.content(), std::vector<std::string>{"notes.db"});
}

TEST(Report, FormatsAreNamedWhenOneIsUnknown) {
  expect_refused(run_kvarena({"report", "--database", "any.db", "--format", "pdf"}), "html");
  expect_refused(run_kvarena({"report", "--database", "any.db", "--out", "report.docx"}), "html");
}

}  // namespace
}  // namespace kvarena::testing
