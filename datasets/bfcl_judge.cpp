#include "datasets/bfcl_judge.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "harness/core/error.h"
#include "harness/core/json_text.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

constexpr const char* kPlace = "BFCL's judge";

}  // namespace

BfclJudge::BfclJudge(std::filesystem::path script) : script_(std::move(script)), process_(kPlace) {}

json BfclJudge::ask(const std::string& task, std::span<const std::string> answers) {
  const std::scoped_lock lock(one_at_a_time_);
  if (!process_.running()) start();
  process_.send(fmt::format(R"({{"task": {}, "answers": {}}})", task, json_text(json(answers))));
  json said = receive();
  const json messages = said.is_object() ? said.value("messages", json()) : json();
  if (messages.is_array() && !messages.empty()) return said;
  process_.stop();
  const std::string reason = said.is_object() ? said.value("error", "") : "";
  fail({.place = kPlace, .found = reason.empty() ? said.dump().substr(0, 80) : reason, .expected = "what follows"});
}

void BfclJudge::start() {
  process_.start({script_.string()});
  const json said = receive();
  if (said.is_object() && said.contains("ready")) return;
  process_.stop();
  const bool absent = said.is_object() && said.contains("absent");
  fail({.place = kPlace,
        .found = absent ? said.value("error", "") : said.dump().substr(0, 80),
        .expected = "BFCL's package",
        .action = "`python3 -m pip install bfcl-eval==2026.3.23` puts it there; KVARENA_PYTHON names another Python "
                  "that has it"});
}

json BfclJudge::receive() {
  const std::chrono::seconds patience = python_patience();
  if (std::optional<json> said = process_.receive(std::chrono::steady_clock::now() + patience)) return *said;
  process_.stop();
  fail({.place = kPlace,
        .found = fmt::format("no answer within {} s", patience.count()),
        .expected = "one soon",
        .action = "where calls take that long, put more seconds into KVARENA_PYTHON_SECONDS"});
}

}  // namespace kvarena::datasets
