#pragma once
// Parameters that are components themselves: {"name": "kvzip", "keep": 0.2}.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kvarena {

/// Settings of a nested component, which Nested<T> holds; false while the parameter is absent.
class NestedComponent {
 public:
  virtual ~NestedComponent() = default;

  [[nodiscard]] explicit operator bool() const { return !settings_.empty(); }
  /// The settings as JSON text with sorted keys; "" while absent.
  [[nodiscard]] const std::string& settings() const { return settings_; }
  /// Their "name".
  [[nodiscard]] const std::string& name() const { return name_; }

  /// Builds the component from `settings`, an object with a "name". Adds every problem as a finished message that
  /// starts with `place`.
  void build(const nlohmann::json& settings, const std::string& place, std::vector<std::string>& problems);

 protected:
  NestedComponent() = default;
  NestedComponent(const NestedComponent&) = default;
  NestedComponent& operator=(const NestedComponent&) = default;

  /// Builds it from JSON text. Throws UserError with all problems, one a line.
  void build(const std::string& settings);

 private:
  virtual void make(const nlohmann::json& settings, const std::string& place, std::vector<std::string>& problems) = 0;

  std::string settings_;
  std::string name_;
};

/// A component built when the parameters around it are read; copies share it. `T` has a function
///   static std::unique_ptr<T> build(const nlohmann::json&, const std::string& place, std::vector<std::string>&
///   problems)
template <typename T>
class Nested final : public NestedComponent {
 public:
  Nested() = default;
  /// A default's settings as JSON text. Throws UserError with all problems, one a line.
  explicit Nested(const std::string& settings) { build(settings); }

  [[nodiscard]] const T& operator*() const { return *component_; }
  [[nodiscard]] const T* operator->() const { return component_.get(); }
  [[nodiscard]] const std::shared_ptr<const T>& shared() const { return component_; }

 private:
  void make(const nlohmann::json& settings, const std::string& place, std::vector<std::string>& problems) override {
    component_ = T::build(settings, place, problems);
  }

  std::shared_ptr<const T> component_;
};

}  // namespace kvarena
