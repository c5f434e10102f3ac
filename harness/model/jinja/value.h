#pragma once
// Values of a Jinja program: Python's, as far as chat templates use them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kvarena::jinja {

class Value;
struct Arguments;

/// Name that nothing was bound to; false, empty, and an error when something is asked of it.
struct Undefined {
  std::string name;
};

using List = std::vector<Value>;
/// In order of insertion, as Python's.
using Dict = std::vector<std::pair<Value, Value>>;
/// Values by the name that a program calls them.
using Names = std::vector<std::pair<std::string, Value>>;
using Function = std::function<Value(const Arguments&)>;

/// Lists and dicts are shared by what copies them, as in Python.
class Value {
 public:
  using Data = std::variant<Undefined, std::nullptr_t, bool, int64_t, double, std::string, std::shared_ptr<List>,
                            std::shared_ptr<Dict>, std::shared_ptr<const Function>>;

  Value() = default;
  Value(Undefined undefined) : data_(std::move(undefined)) {}           // NOLINT: conversions are what values are for
  Value(std::nullptr_t) : data_(nullptr) {}                             // NOLINT
  Value(bool flag) : data_(flag) {}                                     // NOLINT
  Value(int64_t number) : data_(number) {}                              // NOLINT
  Value(double number) : data_(number) {}                               // NOLINT
  Value(std::string text) : data_(std::move(text)) {}                   // NOLINT
  Value(std::string_view text) : data_(std::string(text)) {}            // NOLINT
  Value(const char* text) : data_(std::string(text)) {}                 // NOLINT
  Value(List list) : data_(std::make_shared<List>(std::move(list))) {}  // NOLINT
  Value(Dict dict) : data_(std::make_shared<Dict>(std::move(dict))) {}  // NOLINT
  Value(Function function) : data_(std::make_shared<const Function>(std::move(function))) {}  // NOLINT

  /// Reads a JSON text, keys in the order of the text.
  [[nodiscard]] static Value of_json(std::string_view json);

  [[nodiscard]] bool undefined() const { return std::holds_alternative<Undefined>(data_); }
  [[nodiscard]] bool none() const { return std::holds_alternative<std::nullptr_t>(data_); }
  [[nodiscard]] bool number() const;  // an int, a float, or a bool
  /// The member of a kind, null where the value is of another.
  [[nodiscard]] const bool* flag() const { return std::get_if<bool>(&data_); }
  [[nodiscard]] const int64_t* integer() const { return std::get_if<int64_t>(&data_); }
  [[nodiscard]] const double* real() const { return std::get_if<double>(&data_); }
  [[nodiscard]] const std::string* text() const { return std::get_if<std::string>(&data_); }
  [[nodiscard]] List* list() const;
  [[nodiscard]] Dict* dict() const;
  [[nodiscard]] const Function* function() const;
  [[nodiscard]] const Data& data() const { return data_; }

  /// Python's bool(), str(), repr() and the name of its type.
  [[nodiscard]] bool truth() const;
  [[nodiscard]] std::string str() const;
  [[nodiscard]] std::string repr() const;
  [[nodiscard]] const char* type() const;
  /// A number as a float; absent for what is none.
  [[nodiscard]] std::optional<double> as_real() const;
  /// A bool or an int as an int; absent for what is none.
  [[nodiscard]] std::optional<int64_t> as_integer() const;

  /// The value under a key of a dict; null where there is none.
  [[nodiscard]] const Value* find(const Value& key) const;
  /// Sets a key of a dict.
  void set(const Value& key, Value value) const;

 private:
  Data data_;
};

/// Python's ==; a text and a number are never equal.
[[nodiscard]] bool operator==(const Value& a, const Value& b);
/// Negative, zero or positive; absent where Python would not order the two.
[[nodiscard]] std::optional<int> order(const Value& a, const Value& b);

/// Arguments of a call.
struct Arguments {
  List positional;
  Names keyword;

  /// The argument at a place, or of a name; undefined where neither was given.
  [[nodiscard]] Value get(size_t place, std::string_view name) const;
};

/// json.dumps(value, ensure_ascii=ascii, indent=indent) of Python.
[[nodiscard]] std::string to_json(const Value& value, std::optional<int64_t> indent, bool ascii);

}  // namespace kvarena::jinja
