#pragma once
// Inside the experiment folder: model and features of the CPU, from /proc/cpuinfo.

#include <string>

namespace kvarena::experiment {

struct CpuInfo {
  std::string model = "unknown";
  std::string features;  // features that kernels choose by, in a fixed order, separated by blanks
};

/// Reads the first processor's lines; x86 ("model name", "flags") and Arm ("Features").
[[nodiscard]] CpuInfo parse_cpu_info(const std::string& text);

}  // namespace kvarena::experiment
