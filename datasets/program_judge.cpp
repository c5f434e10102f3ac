#include "datasets/program_judge.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "harness/core/json_text.h"
#include "harness/core/run_code.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

constexpr const char* kPlace = "programs of answers";

}  // namespace

ProgramJudge::ProgramJudge(const std::filesystem::path& script)
    : judge_({.place = kPlace,
              .needs = "g++ with its static libraries, and unshare with user namespaces",
              .action = "containers often forbid these; nothing runs without them"},
             {script.string()}) {}

json ProgramJudge::ask(const std::string& answer, const std::string& tests) {
  require_code_allowed(kPlace);
  return judge_.ask(fmt::format(R"({{"answer": {}, "tests": {}}})", json_text(json(answer)), tests),
                    {"a verdict", [](const json& said) { return said.contains("valid"); }}, /*patience=*/std::nullopt);
}

}  // namespace kvarena::datasets
