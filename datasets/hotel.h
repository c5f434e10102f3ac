#pragma once
// A hotel whose porter is a model: tool calls change and tell which guest is in which room and what was sent there.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kvarena::datasets {

using CallArgument = std::variant<int64_t, std::string>;

/// A tool call, as text name(key="text", other=12).
struct ToolCall {
  std::string name;
  std::vector<std::pair<std::string, CallArgument>> arguments;  // keys are different
};

[[nodiscard]] std::string to_text(const ToolCall& call);
/// {"name": ..., "arguments": {...}}
[[nodiscard]] nlohmann::json to_json(const ToolCall& call);

/// The call that a text is, blanks around its parts and brackets around the whole aside. Texts are in single or double
/// quotes and hold none; numbers are whole, of at most nine digits. Nothing for any other text.
[[nodiscard]] std::optional<ToolCall> read_call(std::string_view text);

/// Its state. Tools: move(guest, room), find(name), send(item, guest, room).
class Hotel {
 public:
  /// Carries out a call and returns its result: "ok", a room, or "error: ..." of a call that changes nothing. A guest
  /// who moves for the first time arrives. Items are sent to the room of the call, whoever is in it.
  std::string carry_out(const ToolCall& call);

  /// {"rooms": {guest: room}, "items": {room: [item, ...]}}: guests whose room is another one than in `before`, and
  /// items that were sent since, by name.
  [[nodiscard]] nlohmann::json changes(const Hotel& before) const;

 private:
  std::map<std::string, int64_t> rooms_;
  std::map<int64_t, std::multiset<std::string>> items_;
};

}  // namespace kvarena::datasets
