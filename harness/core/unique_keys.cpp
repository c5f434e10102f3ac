#include "harness/core/unique_keys.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "harness/core/error.h"

namespace kvarena {
namespace {

using nlohmann::json;

/// Walks through JSON and remembers the keys of the objects that are open. The library's own parser with a callback
/// takes time that grows with the square of an object's size.
class KeyWatch final : public nlohmann::json_sax<json> {
 public:
  explicit KeyWatch(const std::string& place) : place_(place) {}

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(size_t /*elements*/) override {
    open_.emplace_back();
    return true;
  }
  bool key(string_t& value) override {
    if (open_.back().insert(value).second) return true;
    fail({.place = place_,
          .found = fmt::format("the key \"{}\" twice in one object", value),
          .expected = "each key once"});
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool start_array(size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t /*at*/, const std::string& /*token*/, const json::exception& /*error*/) override {
    return false;
  }

 private:
  const std::string& place_;
  std::vector<std::unordered_set<std::string>> open_;
};

}  // namespace

void require_unique_keys(std::string_view text, const std::string& place) {
  KeyWatch watch(place);
  (void)json::sax_parse(text, &watch);
}

}  // namespace kvarena
