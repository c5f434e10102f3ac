#pragma once
// Settings of a method that is written in Python (python/kvarena/methods.py).

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "harness/core/parameters.h"
#include "harness/method/python/child.h"

namespace kvarena {

/// The parameters that a class of a Python file declares, and what Python says of an object made with their values.
/// Holds settings only, so that a process that died can be started again.
class PythonPart {
 public:
  /// `description` is one of PythonChild::methods().
  PythonPart(std::shared_ptr<PythonChild> child, const nlohmann::json& description);

  void parameters(ParameterVisitor& p);
  /// Adds the exception that the class raises for these settings.
  void check(const std::string& place, std::vector<std::string>& problems) const;
  /// Facts about the object with these settings, asked once for each group of settings. Throws UserError where its
  /// __init__ raises.
  [[nodiscard]] const nlohmann::json& made() const;
  /// A message for the object: {VERB: name, "settings": {...}}.
  [[nodiscard]] nlohmann::json request(const char* verb) const;
  [[nodiscard]] const std::shared_ptr<PythonChild>& child() const { return child_; }

 private:
  struct Parameter {
    ParameterInfo info;
    std::variant<bool, int64_t, double, std::string> value;
  };

  std::shared_ptr<PythonChild> child_;
  std::string name_;
  std::vector<Parameter> parameters_;
  mutable nlohmann::json made_;
  mutable nlohmann::json made_by_;  // the request of made_
};

/// A Scorer, Codec, Retriever or BudgetRule whose parameters are a class's in Python.
template <typename Part>
class OfPython : public Part {
 public:
  explicit OfPython(PythonPart part) : part_(std::move(part)) {}

  void parameters(ParameterVisitor& p) override { part_.parameters(p); }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    part_.check(place, problems);
  }

 protected:
  PythonPart part_;
};

}  // namespace kvarena
