#include "harness/core/progress.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace kvarena {
namespace {

/// A progress that writes into a file, on a clock that the test moves.
class ProgressTest : public testing::Test {
 protected:
  ~ProgressTest() override { std::fclose(file_); }

  Progress make(ProgressOptions::Style style) {
    return Progress({.style = style, .stream = file_, .now = [this] { return now_; }});
  }
  std::string written() {
    std::fflush(file_);
    std::rewind(file_);
    std::string text(1 << 16, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file_));
    return text;
  }

  std::FILE* file_ = std::tmpfile();
  double now_ = 1000;
};

TEST_F(ProgressTest, LinesComeEveryFewSecondsAndAtTheEnd) {
  {
    Progress progress = make(ProgressOptions::Style::lines);
    progress.begin("sweep", 100);
    for (int i = 0; i < 100; ++i) {
      now_ += 0.2;
      progress.advance();
    }
    progress.finish();
  }
  EXPECT_EQ(written(),
            "sweep: 0/100   0%\n"
            "sweep: 25/100  25%, 15 s left\n"
            "sweep: 50/100  50%, 10 s left\n"
            "sweep: 75/100  75%, 5 s left\n"
            "sweep: 100/100 100% in 20 s\n");
}

TEST_F(ProgressTest, ResumedStepsDoNotCountForTheSpeed) {
  Progress progress = make(ProgressOptions::Style::quiet);
  progress.begin("sweep", 1000, 900);
  EXPECT_EQ(progress.time_left(), "");
  now_ += 60;
  progress.advance(10);
  EXPECT_EQ(progress.time_left(), "9 min 00 s");
  now_ += 0;
  progress.advance(90);
  EXPECT_EQ(progress.time_left(), "");
}

TEST_F(ProgressTest, StepsOfUnlikeCostCountByTheirCost) {
  Progress progress = make(ProgressOptions::Style::quiet);
  progress.begin("sweep", 30, 0, 20 * 1.0 + 10 * 8.0);
  now_ += 20;
  progress.advance(20);
  EXPECT_EQ(progress.time_left(), "1 min 20 s");
  progress.skip(5, 8);
  EXPECT_EQ(progress.time_left(), "40 s");
}

TEST_F(ProgressTest, LongTimesAreSpokenInHours) {
  Progress progress = make(ProgressOptions::Style::quiet);
  progress.begin("sweep", 100);
  now_ += 3600;
  progress.advance(25);
  EXPECT_EQ(progress.time_left(), "3 h 00 min");
}

TEST_F(ProgressTest, QuietSaysNothingButWarnings) {
  {
    Progress progress = make(ProgressOptions::Style::quiet);
    progress.begin("sweep", 2);
    now_ += 100;
    progress.advance(2);
    progress.message("failed: a cell");
    progress.finish();
  }
  EXPECT_EQ(written(), "failed: a cell\n");
}

TEST_F(ProgressTest, ABarIsRedrawnInPlaceAndTakenAwayForMessages) {
  ::setenv("NO_COLOR", "1", 1);
  {
    Progress progress = make(ProgressOptions::Style::bar);
    progress.begin("sweep", 4);
    now_ += 1;
    progress.advance(2);
    progress.message("a line");
    now_ += 1;
    progress.note("qasper, sample 3");
    progress.finish();
  }
  ::unsetenv("NO_COLOR");
  EXPECT_EQ(written(),
            "\r\x1b[K[........................] 0/4   0%"
            "\r\x1b[K[############............] 2/4  50%, 1 s left"
            "\r\x1b[Ka line\n"
            "\r\x1b[K[############............] 2/4  50%, 2 s left: qasper, sample 3"
            "\r\x1b[Ksweep: 2/4  50% in 2 s\n");
}

TEST_F(ProgressTest, ColoursAreThereUnlessNoColorIsSet) {
  ::unsetenv("NO_COLOR");
  {
    Progress progress = make(ProgressOptions::Style::bar);
    progress.begin("sweep", 4, 2);
  }
  EXPECT_NE(written().find("\x1b[32m####"), std::string::npos);
}

TEST_F(ProgressTest, ABarNeverBreaksTheLine) {
  {
    Progress progress = make(ProgressOptions::Style::bar);
    progress.begin("sweep", 4);
    now_ += 1;
    progress.note(std::string(500, 'x'));
  }
  const std::string text = written();
  const size_t last = text.rfind("\r\x1b[K[");
  EXPECT_LE(text.find("\r", last + 1) - last, 80U + 16) << "80 columns and the codes of colours";
}

TEST_F(ProgressTest, AFileIsNoTerminal) {
  {
    Progress progress = make(ProgressOptions::Style::automatic);
    progress.begin("sweep", 1);
    progress.advance();
    progress.finish();
  }
  EXPECT_EQ(written().find('\r'), std::string::npos);
}

}  // namespace
}  // namespace kvarena
