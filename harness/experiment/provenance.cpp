#include "harness/experiment/provenance.h"

#include <fmt/core.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/utsname.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/experiment/build_info.h"
#include "harness/experiment/cpu_info.h"
#include "harness/results/results_store.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;

/// Files of /proc have no size, so they cannot be mapped; "" when absent.
std::string read_proc(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Processors this process may use, which a container may have made fewer than the machine has.
int64_t usable_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/// "NVIDIA H100 PCIe, NVIDIA H100 PCIe" from the driver's own files; "" without a driver.
std::string gpus() {
  std::string names;
  std::error_code absent;
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", absent)) {
    std::istringstream lines(read_proc(gpu.path() / "information"));
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("Model:", 0) != 0) continue;
      const size_t begin = line.find_first_not_of(" \t", 6);
      if (begin != std::string::npos) names += (names.empty() ? "" : ", ") + line.substr(begin);
    }
  }
  return names;
}

std::string version_text(int packed, int major, int minor) {
  return fmt::format("{}.{}.{}", packed / major, packed % major / minor, packed % minor);
}

json library_versions() {
  json versions = {
      {"sqlite", results::sqlite_version()},
      {"fmt", version_text(FMT_VERSION, 10000, 100)},
      {"nlohmann_json",
       fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
      {"glibc", ::gnu_get_libc_version()},
  };
  if (const std::string torch = build_info().torch_version; !torch.empty()) versions["libtorch"] = torch;
  return versions;
}

}  // namespace

results::RunRecord collect_provenance() {
  const BuildInfo build = build_info();
  const CpuInfo cpu = parse_cpu_info(read_proc("/proc/cpuinfo"));
  struct utsname system {};
  ::uname(&system);
  results::RunRecord run;
  run.git_revision = git_revision();
  run.build_json = json{{"compiler", build.compiler}, {"build_type", build.build_type}, {"flags", build.flags}}.dump();
  run.host = system.nodename;
  run.kernel = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  run.cpu_model = cpu.model;
  run.cpu_features = cpu.features;
  run.cpu_threads = usable_threads();
  run.gpu = gpus();
  run.libraries_json = library_versions().dump();
  return run;
}

}  // namespace kvarena::experiment
