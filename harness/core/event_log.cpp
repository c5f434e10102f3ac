#include "harness/core/event_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/json_text.h"

namespace kvarena {
namespace {

using nlohmann::ordered_json;

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

std::string text_of(const ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

}  // namespace

struct EventLog::File {
  explicit File(const std::filesystem::path& path)
      : logger("events", std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string())) {
    logger.set_pattern("%v");
    logger.flush_on(spdlog::level::trace);
  }
  spdlog::logger logger;
};

EventLog::EventLog() = default;
EventLog::~EventLog() = default;

EventLog::EventLog(EventLogOptions options) : options_(std::move(options)) {
  if (!options_.file) return;
  if (std::filesystem::is_fifo(*options_.file)) {  // opening it would wait for a reader
    fail({.place = options_.file->string(), .found = "a pipe", .expected = "a file that lines are appended to"});
  }
  try {
    file_ = std::make_unique<File>(*options_.file);
  } catch (const spdlog::spdlog_ex& error) {
    fail({.place = options_.file->string(),
          .found = fmt::format("a log that cannot be written ({})", error.what()),
          .action = "choose a file in a folder that you may write to"});
  }
}

void EventLog::record(std::string_view event, const ordered_json& fields) {
  if (file_ != nullptr) {
    ordered_json line = {{"time", utc_now()}, {"event", event}};
    line.update(fields);
    file_->logger.info("{}", json_text(line));
  }
  if (!options_.on_text) return;
  std::string text(event);
  for (const auto& [name, value] : fields.items()) text += fmt::format(" {}={}", name, text_of(value));
  options_.on_text(text);
}

}  // namespace kvarena
