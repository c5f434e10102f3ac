#include "harness/core/log.h"

#include <gtest/gtest.h>

/// Counts how often it is formatted.
struct Costly {
  int* formatted;
};

template <>
struct fmt::formatter<Costly> : fmt::formatter<std::string_view> {
  auto format(const Costly& value, fmt::format_context& context) const {
    ++*value.formatted;
    return fmt::formatter<std::string_view>::format("costly", context);
  }
};

namespace kvarena {
namespace {

TEST(Log, WritesLinesOfTheShownLevelsToStderr) {
  EXPECT_EQ(log_level(), LogLevel::warning);
  testing::internal::CaptureStderr();
  log(LogLevel::info, "not shown {}", 1);
  log(LogLevel::warning, "disk is {} % full", 93);
  log(LogLevel::error, "text with {{braces}} and %d");
  log_line(LogLevel::error, "{} as it is");
  set_log_level(LogLevel::debug);
  log(LogLevel::debug, "now shown");
  set_log_level(LogLevel::off);
  log(LogLevel::error, "nothing");
  set_log_level(LogLevel::warning);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: disk is 93 % full\nerror: text with {braces} and %d\nerror: {} as it is\ndebug: now shown\n");
}

TEST(Log, FormatsOnlyWhatIsShown) {
  int formatted = 0;
  log(LogLevel::info, "{}", Costly{&formatted});
  EXPECT_EQ(formatted, 0);
  testing::internal::CaptureStderr();
  log(LogLevel::error, "{}", Costly{&formatted});
  EXPECT_EQ(formatted, 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: costly\n");
}

}  // namespace
}  // namespace kvarena
