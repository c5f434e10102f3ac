#include "harness/core/python_judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"

namespace kvarena {

using nlohmann::json;

json PythonJudge::ask(std::string_view question, const std::vector<std::string>& members, const Patience& patience,
                      const Aside& aside) {
  const std::scoped_lock lock(one_at_a_time_);
  if (!process_.running()) start();
  process_.send(question);
  json said = receive(patience);
  while (const std::optional<std::string> back = aside ? aside(said) : std::nullopt) {
    process_.send(*back);
    said = receive(patience);
  }
  if (std::ranges::any_of(members, [&](const std::string& member) { return said.contains(member); })) return said;
  refuse(said, fmt::format("an object with {}", fmt::join(members, " or ")), "");
}

void PythonJudge::start() {
  process_.start(command_);
  const json said = receive(python_patience());
  if (!said.contains("ready")) refuse(said, texts_.needs, texts_.action);
}

json PythonJudge::receive(const Patience& patience) {
  if (!patience) return process_.receive().value();
  if (std::optional<json> said = process_.receive(std::chrono::steady_clock::now() + *patience)) return *said;
  process_.stop();
  fail({.place = texts_.place,
        .found = fmt::format("no answer within {} s", patience->count()),
        .expected = "one soon",
        .action = "where answers take that long, put more seconds into KVARENA_PYTHON_SECONDS"});
}

void PythonJudge::refuse(const json& said, const std::string& expected, const std::string& action) {
  process_.stop();
  const std::string reason = said.is_object() ? said.value("error", "") : "";
  fail({.place = texts_.place,
        .found = reason.empty() ? said.dump().substr(0, 80) : reason,
        .expected = expected,
        .action = action});
}

}  // namespace kvarena
