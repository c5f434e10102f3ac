#include "datasets/program_judge.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "harness/core/run_code.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

constexpr const char* kPlace = "programs of answers";

}  // namespace

ProgramJudge::ProgramJudge(std::filesystem::path script) : script_(std::move(script)), process_(kPlace) {}

json ProgramJudge::ask(const std::string& answer, const std::string& tests) {
  const std::scoped_lock lock(one_at_a_time_);
  if (!process_.running()) start();
  process_.send(fmt::format(R"({{"answer": {}, "tests": {}}})", json_text(json(answer)), tests));
  return process_.receive().value();  // its own bounds end every program
}

void ProgramJudge::start() {
  require_code_allowed(kPlace);
  process_.start({script_.string()});
  const json said = process_.receive().value();
  if (said.contains("ready")) return;
  process_.stop();
  fail({.place = kPlace,
        .found = said.value("error", ""),
        .expected = "g++ with its static libraries, and unshare with user namespaces",
        .action = "containers often forbid these; nothing runs without them"});
}

}  // namespace kvarena::datasets
