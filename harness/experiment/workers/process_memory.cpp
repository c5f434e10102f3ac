#include "harness/experiment/workers/process_memory.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace kvarena::experiment {
namespace {

/// The first line of a small file of /proc; "" when it is gone.
std::string first_line(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return "";
  std::array<char, 1024> line{};
  const bool read = std::fgets(line.data(), line.size(), file) != nullptr;
  std::fclose(file);
  return read ? line.data() : "";
}

/// Parent of a process, read from "pid (name) state parent ..."; the name may hold brackets.
pid_t parent_of(pid_t pid) {
  const std::string stat = first_line(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = stat.rfind(')');
  int parent = 0;
  if (name_end == std::string::npos || std::sscanf(stat.c_str() + name_end + 1, " %*c %d", &parent) != 1) return 0;
  return parent;
}

}  // namespace

std::optional<int64_t> own_memory(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  std::optional<int64_t> held;
  for (std::string line; std::getline(status, line);) {
    long long kib = 0;
    if (std::sscanf(line.c_str(), "RssAnon: %lld kB", &kib) == 1 ||
        std::sscanf(line.c_str(), "RssShmem: %lld kB", &kib) == 1)
      held = held.value_or(0) + kib * 1024;
  }
  return held;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    const std::string name = entry.path().filename();
    pid_t candidate = 0;
    const auto number = std::from_chars(name.data(), name.data() + name.size(), candidate);
    if (number.ec != std::errc() || number.ptr != name.data() + name.size()) continue;
    if (parent_of(candidate) == pid) children.push_back(candidate);
  }
  return children;
}

}  // namespace kvarena::experiment
