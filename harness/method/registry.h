#pragma once
// The registry of methods: names, descriptions, construction from JSON.

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/method/method.h"

namespace kvarena {

/// The registration line of a method.
struct MethodInfo {
  std::string name;     // as in configs: "snapkv"
  std::string title;    // as in prose: "SnapKV"
  std::string summary;  // one sentence: what it keeps or changes
  std::string paper;    // "arXiv:2404.14469, section 4"
};

struct MethodEntry {
  MethodInfo info;
  Family family = Family::reference;
  std::function<std::unique_ptr<Method>()> create;  // with default parameters

  [[nodiscard]] std::vector<ParameterInfo> parameters() const;
};

/// All registered methods by name. Throws InternalError when two files claim one name.
[[nodiscard]] const std::vector<MethodEntry>& method_registry();

/// Null when there is no such method.
[[nodiscard]] const MethodEntry* find_method(const std::string& name);

/// Every problem with a method's JSON settings ({"name": ..., parameters}), nested methods included; messages start
/// with `place`. Empty when make_method will succeed.
[[nodiscard]] std::vector<std::string> check_method(const nlohmann::json& spec, const std::string& place);

/// A method with the given settings. Throws UserError with all problems, one a line. Keys in `ignored` belong to the
/// caller (a config's "label").
[[nodiscard]] std::unique_ptr<Method> make_method(const nlohmann::json& spec, const std::string& place);

namespace detail {
struct RegisterMethod {
  explicit RegisterMethod(MethodEntry entry);
};
}  // namespace detail

/// KVARENA_METHOD(Full, Family::reference, {.name = "full", ...}); narrow bases have macros of their own.
#define KVARENA_REGISTER(type, family_value, create_expression, ...)                         \
  namespace {                                                                                \
  const ::kvarena::detail::RegisterMethod registered_##type{                                 \
      {.info = ::kvarena::MethodInfo __VA_ARGS__,                                            \
       .family = family_value,                                                               \
       .create = []() -> std::unique_ptr<::kvarena::Method> { return create_expression; }}}; \
  }
#define KVARENA_METHOD(type, family_value, ...) \
  KVARENA_REGISTER(type, family_value, std::make_unique<type>(), __VA_ARGS__)

}  // namespace kvarena
