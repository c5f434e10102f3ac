#include "harness/core/unique_keys.h"

#include <fmt/format.h>

#include <unordered_set>
#include <vector>

#include "harness/core/error.h"
#include "harness/core/json_walk.h"

namespace kvarena {
namespace {

/// Walks through JSON and remembers the keys of the objects that are open. The library's own parser with a callback
/// takes time that grows with the square of an object's size.
class KeyWatch final : public JsonWalk {
 public:
  explicit KeyWatch(const std::string& place) : place_(place) {}

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

 private:
  const std::string& place_;
  std::vector<std::unordered_set<std::string>> open_;
};

}  // namespace

void require_unique_keys(std::string_view text, const std::string& place) {
  KeyWatch watch(place);
  (void)nlohmann::json::sax_parse(text, &watch);
}

}  // namespace kvarena
