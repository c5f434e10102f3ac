#include "datasets/hotel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "datasets/prompt.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

constexpr size_t kMostDigits = 9;

bool names_something(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Reads a text from its front.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  /// Whether the next character that is no blank is `c`; it is then read.
  bool take(char c) {
    skip_blanks();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  [[nodiscard]] bool at_end() {
    skip_blanks();
    return text_.empty();
  }

  std::optional<std::string> name() {
    skip_blanks();
    if (text_.empty() || !names_something(text_.front())) return std::nullopt;
    return front_while([](char c) { return names_something(c) || is_digit(c); });
  }

  std::optional<CallArgument> value() {
    for (const char quote : {'"', '\''}) {
      if (!take(quote)) continue;
      std::string text = front_while([quote](char c) { return c != quote && c != '\\'; });
      if (text_.empty() || text_.front() != quote) return std::nullopt;
      text_.remove_prefix(1);
      return text;
    }
    const std::string digits = front_while(is_digit);
    const bool zeros = digits.size() > 1 && digits.front() == '0';
    if (digits.empty() || digits.size() > kMostDigits || zeros) return std::nullopt;
    return std::stoll(digits);
  }

 private:
  void skip_blanks() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t\n"), text_.size())); }

  template <typename Condition>
  std::string front_while(const Condition& holds) {
    const auto end = std::find_if_not(text_.begin(), text_.end(), holds);
    std::string front(text_.begin(), end);
    text_.remove_prefix(front.size());
    return front;
  }

  std::string_view text_;
};

/// The value of a key, of the type that the caller expects; null where there is none.
template <typename T>
const T* argument(const ToolCall& call, std::string_view key) {
  const auto found = std::ranges::find(call.arguments, key, [](const auto& named) { return named.first; });
  return found == call.arguments.end() ? nullptr : std::get_if<T>(&found->second);
}

json plain_json(const CallArgument& value) {
  return std::visit([](const auto& plain) { return json(plain); }, value);
}

}  // namespace

std::string to_text(const ToolCall& call) {
  std::vector<std::string> arguments;
  for (const auto& [key, value] : call.arguments) {
    const auto* number = std::get_if<int64_t>(&value);
    arguments.push_back(number != nullptr ? fmt::format("{}={}", key, *number)
                                          : fmt::format("{}=\"{}\"", key, std::get<std::string>(value)));
  }
  return fmt::format("{}({})", call.name, fmt::join(arguments, ", "));
}

json to_json(const ToolCall& call) {
  json arguments = json::object();
  for (const auto& [key, value] : call.arguments) arguments[key] = plain_json(value);
  return {{"name", call.name}, {"arguments", arguments}};
}

std::optional<ToolCall> read_call(std::string_view text) {
  Cursor cursor(text);
  const bool bracket = cursor.take('[');
  std::optional<std::string> name = cursor.name();
  if (!name || !cursor.take('(')) return std::nullopt;
  ToolCall call{.name = std::move(*name), .arguments = {}};
  for (bool more = !cursor.take(')'); more; more = cursor.take(',')) {
    std::optional<std::string> key = cursor.name();
    const bool again =
        key && std::ranges::any_of(call.arguments, [&](const auto& named) { return named.first == *key; });
    if (!key || again || !cursor.take('=')) return std::nullopt;
    std::optional<CallArgument> value = cursor.value();
    if (!value) return std::nullopt;
    call.arguments.emplace_back(std::move(*key), std::move(*value));
  }
  if (!call.arguments.empty() && !cursor.take(')')) return std::nullopt;
  if (bracket && !cursor.take(']')) return std::nullopt;
  return cursor.at_end() ? std::optional(std::move(call)) : std::nullopt;
}

std::string Hotel::carry_out(const ToolCall& call) {
  const auto* guest = argument<std::string>(call, call.name == "find" ? "name" : "guest");
  const auto* room = argument<int64_t>(call, "room");
  const auto* item = argument<std::string>(call, "item");
  const size_t given = call.arguments.size();
  const bool known = guest != nullptr && rooms_.contains(*guest);
  if (call.name == "move") {
    if (given != 2 || guest == nullptr || room == nullptr) return "error: move needs guest, room";
    rooms_[*guest] = *room;
    return "ok";
  }
  if (call.name == "find") {
    if (given != 1 || guest == nullptr) return "error: find needs name";
    return known ? fmt::format("{}", rooms_.at(*guest)) : "error: no such guest";
  }
  if (call.name == "send") {
    if (given != 3 || item == nullptr || guest == nullptr || room == nullptr) {
      return "error: send needs item, guest, room";
    }
    if (!known) return "error: no such guest";
    items_[*room].insert(*item);
    return "ok";
  }
  return "error: no such tool";
}

json Hotel::changes(const Hotel& before) const {
  json rooms = json::object(), items = json::object();
  for (const auto& [guest, room] : rooms_) {
    const auto old = before.rooms_.find(guest);
    if (old == before.rooms_.end() || old->second != room) rooms[guest] = room;
  }
  for (const auto& [room, sent] : items_) {
    std::vector<std::string> fresh;
    const auto old = before.items_.find(room);
    const std::multiset<std::string> earlier = old == before.items_.end() ? std::multiset<std::string>{} : old->second;
    std::ranges::set_difference(sent, earlier, std::back_inserter(fresh));
    if (!fresh.empty()) items[fmt::format("{}", room)] = fresh;
  }
  return {{"rooms", rooms}, {"items", items}};
}

}  // namespace kvarena::datasets
