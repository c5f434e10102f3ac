#pragma once
// Parameters declared once, used for parsing, validation, --help, the JSON Schema and the documentation.
//
// A component lists its members in one function:
//
//   void parameters(ParameterVisitor& p) {
//     p("window", window_).min(1).doc("queries at the end of the prompt that vote");
//     p("pool", pool_).one_of({"avg", "max"}).doc("how votes are smoothed along tokens");
//   }
//
// The function is run with a visitor that reads values from JSON and with one that writes descriptions.

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace kvarena {

/// A word of a few, or numbers in its place.
using WordOrNumbers = std::variant<std::string, std::vector<int64_t>>;

/// Description of a parameter.
struct ParameterInfo {
  enum class Type { boolean, integer, number, string, list, word_or_list, method };
  std::string name;
  Type type = Type::number;
  std::string default_json;          // as JSON text: 64, 0.5, "avg", null when required
  std::optional<double> min;         // inclusive
  std::optional<double> max;         // inclusive
  std::optional<double> above;       // exclusive lower bound
  std::vector<std::string> choices;  // allowed values of a string or word; empty = any
  std::string doc;
  bool required = false;
};

/// "integer, at least 1, default 64"
[[nodiscard]] std::string describe(const ParameterInfo& info);

class NestedComponent;

/// Sees each parameter of a component once. Chained calls on the result refine the description; they must come in
/// the same full expression as the declaration.
class ParameterVisitor {
 public:
  class Declared {
   public:
    Declared(ParameterVisitor& visitor, size_t index) : visitor_(&visitor), index_(index) {}
    Declared& min(double value);
    Declared& max(double value);
    Declared& above(double value);
    Declared& one_of(std::vector<std::string> choices);
    Declared& doc(std::string text);
    Declared& required();

   private:
    ParameterVisitor* visitor_;
    size_t index_;
  };

  Declared operator()(std::string name, bool& value);
  Declared operator()(std::string name, int64_t& value);
  Declared operator()(std::string name, double& value);
  Declared operator()(std::string name, std::string& value);
  Declared operator()(std::string name, std::vector<int64_t>& value);
  Declared operator()(std::string name, std::vector<double>& value);
  Declared operator()(std::string name, WordOrNumbers& value);
  Declared operator()(std::string name, std::optional<int64_t>& value);
  Declared operator()(std::string name, std::optional<double>& value);
  Declared operator()(std::string name, NestedComponent& value);

  /// Builds a component whose settings, as JSON text, follow from the parameters, once these are read without a
  /// problem. Problems of the component are problems of the parameters.
  void derive(NestedComponent& component, std::function<std::string()> settings);

 private:
  friend std::vector<ParameterInfo> list_parameters(const std::function<void(ParameterVisitor&)>&);
  friend std::vector<std::string> read_parameters(const nlohmann::json&, const std::string&,
                                                  const std::function<void(ParameterVisitor&)>&,
                                                  const std::vector<std::string>&);
  using Target = std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*, std::vector<double>*,
                              WordOrNumbers*, std::optional<int64_t>*, std::optional<double>*, NestedComponent*>;
  Declared declare(std::string name, ParameterInfo::Type type, Target target);

  std::vector<ParameterInfo> infos_;
  std::vector<Target> targets_;
  std::vector<std::pair<NestedComponent*, std::function<std::string()>>> derived_;
};

/// Descriptions of everything `declare` declares, with the members' present values as defaults.
[[nodiscard]] std::vector<ParameterInfo> list_parameters(const std::function<void(ParameterVisitor&)>& declare);

/// Fills the members from `object`. Returns every problem as a finished message that starts with `place` and the
/// key's path: unknown keys (with the nearest known one), wrong types, values out of range, missing required ones.
/// Keys in `ignored` ("name") are skipped. An empty result means that all members are set.
[[nodiscard]] std::vector<std::string> read_parameters(const nlohmann::json& object, const std::string& place,
                                                       const std::function<void(ParameterVisitor&)>& declare,
                                                       const std::vector<std::string>& ignored = {"name"});

}  // namespace kvarena
