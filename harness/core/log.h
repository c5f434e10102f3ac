#pragma once
// The program's log on stderr. One small door, so that only log.cpp pays for the logging library.

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace kvarena {

enum class LogLevel { debug, info, warning, error, off };

/// Messages below `level` are dropped. At the start: warning.
void set_log_level(LogLevel level);
[[nodiscard]] LogLevel log_level();

/// One line on stderr: "warning: text". Safe from any thread. Coloured on a terminal unless NO_COLOR is set.
void log_line(LogLevel level, std::string_view text);

/// log(LogLevel::info, "read {} samples", n): formats only when the level is shown.
template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (level >= log_level()) log_line(level, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace kvarena
