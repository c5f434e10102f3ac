#include "harness/core/python_judge.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"

namespace kvarena {

using nlohmann::json;

json PythonJudge::ask(std::string_view question, const Answer& answer, const Patience& patience, const Aside& aside) {
  const std::scoped_lock lock(one_at_a_time_);
  if (!process_.running()) start(patience ? python_patience() : patience);
  process_.send(question);
  json said = receive(patience);
  while (const std::optional<std::string> back = aside ? aside(said) : std::nullopt) {
    process_.send(*back);
    said = receive(patience);
  }
  if (answer.given(said)) return said;
  refuse(said, answer.expected, "");
}

void PythonJudge::start(const Patience& patience) {
  process_.start(command_);
  const json said = receive(patience);
  if (!said.contains("ready")) refuse(said, texts_.needs, texts_.action);
}

json PythonJudge::receive(const Patience& patience) {
  if (!patience) return process_.receive().value();
  if (std::optional<json> said = process_.receive(std::chrono::steady_clock::now() + *patience)) return *said;
  process_.stop();
  fail({.place = texts_.place,
        .found = fmt::format("no answer within {} s", patience->count()),
        .expected = "one soon",
        .action = *patience == python_patience()
                      ? "where calls take that long, put more seconds into KVARENA_PYTHON_SECONDS"
                      : ""});
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
