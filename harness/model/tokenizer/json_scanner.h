#pragma once
// A forward reader of JSON for the two huge members of tokenizer.json, the vocabulary and the merges: half a million
// strings that a tree of JSON values would hold one by one.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvarena {

/// Throws UserError naming `place` and the byte when the text is not JSON or not of the wanted type.
class JsonScanner {
 public:
  JsonScanner(std::string_view text, std::string place) : text_(text), place_(std::move(place)) {}

  /// Objects: begin_object(), then next_member() until it says false; each member's value is read or skipped before
  /// the next call. The key is valid until then.
  void begin_object();
  [[nodiscard]] bool next_member(std::string_view& key);

  /// Arrays: begin_array(), then next_item() until it says false.
  void begin_array();
  [[nodiscard]] bool next_item();

  /// Valid until `scratch` changes: a view into the text where the string has no escapes, else into `scratch`.
  [[nodiscard]] std::string_view read_string(std::string& scratch);
  [[nodiscard]] int64_t read_integer();

  /// Steps over a value and returns its text.
  std::string_view skip_value();

  /// The first character of the value that follows.
  [[nodiscard]] char peek();

 private:
  void skip_space();
  void expect(char wanted);
  [[nodiscard]] bool next(char close);
  void append_escape(std::string& out);
  [[nodiscard]] uint32_t read_hex4();
  void skip_string();
  [[noreturn]] void fail_at(const std::string& expected) const;

  std::string_view text_;
  std::string place_;
  size_t at_ = 0;
  bool first_ = false;  // the next member or item is its container's first
  std::string key_scratch_;
};

}  // namespace kvarena
