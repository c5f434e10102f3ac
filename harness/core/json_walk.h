#pragma once
// Walks through JSON that keep nothing of it.

#include <nlohmann/json.hpp>
#include <string>

namespace kvarena {

/// Takes every event of the library's parser and does nothing; a walk overrides those that it looks at. False from an
/// event ends the walk. What is wrong with the text is left to a parser.
class JsonWalk : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(size_t /*elements*/) override { return true; }
  bool key(string_t& /*value*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t /*at*/, const std::string& /*token*/, const nlohmann::json::exception& /*error*/) override {
    return false;
  }
};

}  // namespace kvarena
