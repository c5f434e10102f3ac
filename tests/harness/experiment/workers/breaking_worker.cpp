// breaking_worker --channel N: FakeEvaluator in a worker, which breaks as its setup says:
//
//   {"config": text, "breaks": [{"method": label, "sample": id, "how": "segfault", "times": 2, "counter": file}]}
//
// With "times" it breaks so often only; the file remembers how often it did.

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <thread>

#include "harness/experiment/workers/message.h"
#include "harness/experiment/workers/serve.h"
#include "tests/harness/experiment/support.h"

namespace kvarena::experiment {
namespace {

using experiment::EvalTask;
using experiment::FakeEvaluator;
using experiment::PlannedCell;
using nlohmann::json;

int channel = -1;

/// Takes memory until somebody ends it.
[[noreturn]] void leak() {
  constexpr size_t kPiece = 1 << 20;
  while (true) {
    auto* piece = static_cast<volatile char*>(std::malloc(kPiece));
    for (size_t i = 0; i < kPiece; i += 1024) piece[i] = 1;
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
}

/// Calls itself until there is no stack left.
int64_t descend(int64_t depth) {
  std::array<volatile char, 4096> room{};
  room[static_cast<size_t>(depth) % room.size()] = 1;
  return depth < 0 ? 0 : descend(depth + 1) + room[0];
}

std::string break_down(const std::string& how) {
  fmt::print(stderr, "about to {}\n", how);
  fmt::print("and this stands on standard output");
  std::fflush(stdout);
  if (how == "segfault" || how == "descend") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    std::signal(SIGSEGV, SIG_DFL);  // sanitizers have plans of their own for it
#endif
    if (how == "descend") return std::to_string(descend(0));
    std::raise(SIGSEGV);
  }
  if (how == "abort") std::abort();
  if (how == "exit") std::_Exit(3);
  if (how == "be killed") std::raise(SIGKILL);
  if (how == "leak") leak();
  if (how == "talk nonsense") {
    const std::string nonsense(64, '\xff');
    (void)!::send(channel, nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
  }
  if (how == "answer beside the question") {
    const std::string answer = frame({{"ok", {{{"prompt_sha256", "ab"}, {"prompt_tokens", 1e300}}}}});
    (void)!::send(channel, answer.data(), answer.size(), MSG_NOSIGNAL);
  }
  while (how == "hang" || how == "talk nonsense" || how == "answer beside the question")
    std::this_thread::sleep_for(std::chrono::hours(1));
  if (how == "throw a number") throw 42;  // NOLINT: methods may throw anything
  if (how == "throw") throw std::runtime_error("thrown by a method");
  return "failed by itself";
}

bool still_due(const json& rule) {
  if (!rule.contains("times")) return true;
  std::FILE* file = std::fopen(rule.at("counter").get<std::string>().c_str(), "a+");
  if (file == nullptr) return true;
  std::fputc('x', file);
  const bool due = std::ftell(file) <= rule.at("times").get<long>();
  std::fclose(file);
  return due;
}

Bench open_bench(const json& setup) {
  Bench bench;
  bench.config =
      std::make_unique<const experiment::ExperimentConfig>(experiment::parse(setup.at("config").get<std::string>()));
  auto evaluator = std::make_unique<FakeEvaluator>();
  evaluator->failure = [rules = setup.at("breaks")](const EvalTask& task, const PlannedCell& cell) -> std::string {
    for (const json& rule : rules) {
      if (rule.at("method") == cell.record.method && rule.at("sample") == task.sample_id && still_due(rule))
        return break_down(rule.at("how"));
    }
    return {};
  };
  bench.evaluator = std::move(evaluator);
  return bench;
}

}  // namespace
}  // namespace kvarena::experiment

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  kvarena::experiment::channel = std::atoi(argv[2]);
  kvarena::experiment::serve(kvarena::experiment::channel, kvarena::experiment::open_bench);
  return 0;
}
