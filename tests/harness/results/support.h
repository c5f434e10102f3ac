#pragma once
// Shared by the store's tests: a folder of one's own, small records, work in a child process.

#include <fmt/format.h>
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <csignal>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "harness/results/results_store.h"
#include "tests/support/temporary_folder.h"

namespace kvarena::results {

using kvarena::testing::TemporaryFolder;

inline CellRecord small_cell(const std::string& id, const std::string& method, int64_t position = 0,
                             int64_t samples = 3) {
  CellRecord cell;
  cell.cell_id = id;
  cell.experiment = "exp";
  cell.model = "tiny";
  cell.workload = "qa";
  cell.method = cell.method_name = method;
  cell.protocol_sha256 = "card";
  cell.position = position;
  cell.planned_samples = samples;
  cell.baseline = position == 0;
  return cell;
}

inline SampleResult small_sample(const std::string& cell, int64_t index, double score = 0.5) {
  SampleResult sample;
  sample.cell_id = cell;
  sample.sample_id = fmt::format("s{}", index);
  sample.sample_index = index;
  sample.prompt_sha256 = fmt::format("prompt{}", index);
  sample.context = fmt::format("context{}", index / 2);
  sample.prompt_tokens = 100 + index;
  sample.truncated_tokens = 7;
  sample.output_tokens = 5;
  sample.prediction = "an answer";
  sample.references_json = R"(["an answer", "another"])";
  sample.finish_reason = "stop";
  sample.activity_json = R"({"entries_dropped": 12})";
  sample.wall_s = 0.25;
  sample.values = {{.metric = "token_f1", .value = score, .unit = "fraction"},
                   {.metric = "time_to_first_token_ms", .value = 12.5, .unit = "ms", .clock = Clock::measured}};
  sample.series = {{.name = "kl_nats", .values = {0.125F, std::nanf(""), 3.5F}, .unit = "nats"}};
  sample.events = {{.event = "verify", .at_ms = 4.5, .data_json = R"({"accepted": 3})"}};
  sample.peak_bytes = {{"device", 1000 + index}};
  return sample;
}

/// Puts these bytes in place of a database, as a failing disk or another program may.
inline void put_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Runs `work` in a child process and returns the message of what it threw, "" for nothing, "signal N" for a death.
inline std::string in_child(const std::function<void()>& work, bool as_nobody = false) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    std::string message;
    // Root may write anywhere, so permissions are only seen as somebody else.
    if (as_nobody && ::geteuid() == 0 &&
        (::setgroups(0, nullptr) != 0 || ::setegid(65534) != 0 || ::seteuid(65534) != 0)) {
      message = "cannot become nobody";
    } else {
      try {
        work();
      } catch (const std::exception& error) {
        message = error.what();
      }
    }
    const auto written = ::write(ends[1], message.data(), message.size());
    ::_exit(written < 0);
  }
  ::close(ends[1]);
  std::string message;
  std::array<char, 4096> part{};
  for (ssize_t n = 0; (n = ::read(ends[0], part.data(), part.size())) > 0;) message.append(part.data(), n);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status)) : message;
}

}  // namespace kvarena::results
