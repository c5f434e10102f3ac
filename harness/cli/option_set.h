#pragma once
// Descriptions of a command's options, independent of the parsing library: bind.cpp passes them to the library and the
// results back, so that no command pays for that library's headers.
//
//   struct Options {
//     std::string name;
//     bool json = false;
//     void declare(OptionSet& o) {
//       o.positional("NAME", name).help("the method to describe");
//       o.flag("json", json).help("write JSON");
//     }
//   };

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kvarena::cli {

/// Destination of a value. A vector takes every value given; all others take exactly one.
using Target = std::variant<bool*, std::string*, int64_t*, double*, std::filesystem::path*, std::optional<std::string>*,
                            std::optional<int64_t>*, std::optional<double>*, std::optional<std::filesystem::path>*,
                            std::vector<std::string>*, std::vector<double>*, std::vector<std::filesystem::path>*>;

struct Option {
  std::string name;        // "max-new-tokens"; a positional has its place holder: "CONFIG"
  std::string value_name;  // "N" in `--limit N`; empty for flags and positionals
  Target target;
  std::string help;                  // a phrase, no full stop
  std::string default_text;          // "" = nothing worth saying
  std::vector<std::string> choices;  // empty = any
  bool positional = false;
  bool required = false;

  [[nodiscard]] bool is_flag() const { return std::holds_alternative<bool*>(target); }
  [[nodiscard]] bool takes_many() const;
  /// The option as written: "--limit" or "CONFIG".
  [[nodiscard]] std::string display() const { return positional ? name : "--" + name; }
};

class OptionSet {
 public:
  /// Refines the option just declared; valid until the next declaration.
  class Declared {
   public:
    explicit Declared(Option& option) : option_(&option) {}
    Declared& help(std::string text);
    Declared& choices(std::vector<std::string> values);
    Declared& required();
    /// Text of the default, instead of the target's present value.
    Declared& default_text(std::string text);

   private:
    Option* option_;
  };

  /// Declares `--name`, which sets `target`.
  Declared flag(std::string name, bool& target);
  /// Declares `--name VALUE`.
  template <typename T>
  Declared option(const std::string& name, const std::string& value_name, T& target) {
    return add_option(name, value_name, &target);
  }
  /// A bare word, in the order of declaration; required unless its target is optional or a vector.
  template <typename T>
  Declared positional(const std::string& name, T& target) {
    return add_positional(name, &target);
  }

  [[nodiscard]] const std::vector<Option>& all() const { return options_; }
  /// Names with their dashes, for suggestions.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  Declared add_option(std::string name, std::string value_name, Target target);
  Declared add_positional(std::string name, Target target);

  std::vector<Option> options_;
};

/// Stores what was written for an option; `values` is empty when it was not given, and holds "true" for a flag. Throws
/// UserError naming the option, what was found and what is expected.
void assign(const Option& option, const std::vector<std::string>& values);

}  // namespace kvarena::cli
