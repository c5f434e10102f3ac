#include "harness/model/jinja/value.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/model/tokenizer/utf8.h"

namespace kvarena::jinja {
namespace {

Value of(const nlohmann::ordered_json& json) {
  if (json.is_null()) return nullptr;
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    List list;
    for (const auto& item : json) list.push_back(of(item));
    return list;
  }
  Dict dict;
  for (const auto& [key, item] : json.items()) dict.emplace_back(key, of(item));
  return dict;
}

/// Python's repr of a float: the shortest text that reads back.
std::string text_of(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string python_quoted(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else {
      if (c == '\\' || c == quote) out += '\\';
      out += c;
    }
  }
  return out + quote;
}

/// A character beyond ASCII in JSON, by its UTF-16 units.
std::string escaped(uint32_t point) {
  if (point < 0x10000) return fmt::format("\\u{:04x}", point);
  point -= 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (point >> 10), 0xdc00 + (point & 0x3ff));
}

std::string json_quoted(std::string_view text, bool ascii) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (ascii && static_cast<uint8_t>(c) >= 0x80) {
      const CodePoint point = code_point_at(text, at);
      out += escaped(point.value);
      at += point.length - 1;
      continue;
    }
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<int>(c));
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

class JsonWriter {
 public:
  JsonWriter(std::optional<int64_t> indent, bool ascii) : indent_(indent), ascii_(ascii) {}

  void write(const Value& value) {
    if (const Dict* dict = value.dict()) {
      const auto item = [&](size_t i) {
        out_ += json_quoted((*dict)[i].first.str(), ascii_) + ": ";
        write((*dict)[i].second);
      };
      write_items('{', '}', dict->size(), item);
    } else if (const List* list = value.list()) {
      write_items('[', ']', list->size(), [&](size_t i) { write((*list)[i]); });
    } else if (const std::string* text = value.text()) {
      out_ += json_quoted(*text, ascii_);
    } else if (const bool* flag = value.flag()) {
      out_ += *flag ? "true" : "false";
    } else if (value.none() || value.undefined()) {
      out_ += "null";
    } else {
      out_ += value.str();
    }
  }

  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  template <class Item>
  void write_items(char open, char close, size_t count, Item item) {
    out_ += open;
    ++depth_;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out_ += indent_ ? "," : ", ";
      start_line();
      item(i);
    }
    --depth_;
    if (count > 0) start_line();
    out_ += close;
  }

  void start_line() {
    if (indent_) out_ += '\n' + std::string(static_cast<size_t>(*indent_ * depth_), ' ');
  }

  std::optional<int64_t> indent_;
  bool ascii_;
  int64_t depth_ = 0;
  std::string out_;
};

}  // namespace

Value Value::of_json(std::string_view json) { return of(nlohmann::ordered_json::parse(json)); }

bool Value::number() const { return as_real().has_value(); }

List* Value::list() const {
  const auto* list = std::get_if<std::shared_ptr<List>>(&data_);
  return list == nullptr ? nullptr : list->get();
}

Dict* Value::dict() const {
  const auto* dict = std::get_if<std::shared_ptr<Dict>>(&data_);
  return dict == nullptr ? nullptr : dict->get();
}

const Function* Value::function() const {
  const auto* function = std::get_if<std::shared_ptr<const Function>>(&data_);
  return function == nullptr ? nullptr : function->get();
}

bool Value::truth() const {
  if (undefined() || none()) return false;
  if (const std::optional<double> number = as_real()) return *number != 0;
  if (text() != nullptr) return !text()->empty();
  if (list() != nullptr) return !list()->empty();
  if (dict() != nullptr) return !dict()->empty();
  return true;
}

std::string Value::str() const { return text() != nullptr ? *text() : undefined() ? "" : repr(); }

std::string Value::repr() const {
  if (undefined()) return "Undefined";
  if (none()) return "None";
  if (flag() != nullptr) return *flag() ? "True" : "False";
  if (integer() != nullptr) return fmt::to_string(*integer());
  if (real() != nullptr) return text_of(*real());
  if (text() != nullptr) return python_quoted(*text());
  std::vector<std::string> parts;
  if (list() != nullptr) {
    for (const Value& item : *list()) parts.push_back(item.repr());
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
  if (dict() != nullptr) {
    for (const auto& [key, item] : *dict()) parts.push_back(fmt::format("{}: {}", key.repr(), item.repr()));
    return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }
  return "<function>";
}

const char* Value::type() const {
  constexpr const char* kNames[] = {"undefined", "none", "bool", "int", "float", "str", "list", "dict", "function"};
  return kNames[data_.index()];
}

std::optional<double> Value::as_real() const {
  if (real() != nullptr) return *real();
  const std::optional<int64_t> whole = as_integer();
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

std::optional<int64_t> Value::as_integer() const {
  if (integer() != nullptr) return *integer();
  return flag() != nullptr ? std::optional<int64_t>(*flag() ? 1 : 0) : std::nullopt;
}

const Value* Value::find(const Value& key) const {
  if (dict() == nullptr) return nullptr;
  for (const auto& [name, value] : *dict()) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Value::set(const Value& key, Value value) const {
  for (auto& [name, old] : *dict()) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  dict()->emplace_back(key, std::move(value));
}

bool operator==(const Value& a, const Value& b) {
  if (a.number() && b.number()) return *a.as_real() == *b.as_real();
  if (a.data().index() != b.data().index()) return false;
  if (a.text() != nullptr) return *a.text() == *b.text();
  if (a.list() != nullptr) return *a.list() == *b.list();
  if (a.function() != nullptr) return a.function() == b.function();
  if (a.dict() == nullptr) return true;  // none, undefined
  if (a.dict()->size() != b.dict()->size()) return false;
  for (const auto& [key, value] : *a.dict()) {
    const Value* other = b.find(key);
    if (other == nullptr || !(value == *other)) return false;
  }
  return true;
}

std::optional<int> order(const Value& a, const Value& b) {
  if (a.number() && b.number()) {
    const double difference = *a.as_real() - *b.as_real();
    return difference < 0 ? -1 : difference > 0 ? 1 : 0;
  }
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->compare(*b.text());
  return std::nullopt;
}

Value Arguments::get(size_t place, std::string_view name) const {
  if (place < positional.size()) return positional[place];
  for (const auto& [given, value] : keyword) {
    if (given == name) return value;
  }
  return {};
}

std::string to_json(const Value& value, std::optional<int64_t> indent, bool ascii) {
  JsonWriter writer(indent, ascii);
  writer.write(value);
  return writer.take();
}

}  // namespace kvarena::jinja
