#pragma once
// Log of a long task, event by event: JSON lines for programs, text lines for people.

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace kvarena {

struct EventLogOptions {
  /// File that gets a line of JSON an event, {"time": UTC with milliseconds, "event": name, ...fields}, flushed at
  /// once: the last events before a crash matter most.
  std::optional<std::filesystem::path> file;
  /// Called with "name key=value ..." of each event; may be empty.
  std::function<void(const std::string& line)> on_text;
};

/// Thread-safe. A log without a file and a listener costs nothing.
class EventLog {
 public:
  EventLog();
  /// Throws UserError naming the file when it cannot be written.
  explicit EventLog(EventLogOptions options);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// `fields` is an object; its order is kept. Bytes of texts that are no UTF-8 become U+FFFD.
  void record(std::string_view event, const nlohmann::ordered_json& fields);

 private:
  struct File;
  EventLogOptions options_;
  std::unique_ptr<File> file_;
};

}  // namespace kvarena
