#include "harness/core/log.h"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>

namespace kvarena {
namespace {

std::atomic<LogLevel> shown{LogLevel::warning};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: return spdlog::level::off;
  }
  return spdlog::level::off;
}

/// Made at the first message. Flushes each line: the last ones before a crash are those that matter.
spdlog::logger& logger() {
  static const std::unique_ptr<spdlog::logger> instance = [] {
    std::shared_ptr<spdlog::sinks::sink> sink;
    if (::isatty(STDERR_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr) {
      sink = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    }
    auto made = std::make_unique<spdlog::logger>("kvarena", std::move(sink));
    made->set_pattern("%^%l:%$ %v");
    made->set_level(spdlog::level::trace);  // log() has chosen already
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) { shown.store(level, std::memory_order_relaxed); }
LogLevel log_level() { return shown.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view text) {
  if (level < log_level() || level == LogLevel::off) return;
  logger().log(to_spdlog(level), "{}", text);
}

}  // namespace kvarena
