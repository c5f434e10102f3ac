#include "harness/experiment/cpu_info.h"

#include <array>
#include <set>
#include <sstream>
#include <string_view>

namespace kvarena::experiment {
namespace {

constexpr std::array<std::string_view, 17> kFeatures = {
    "avx2",        "fma",      "f16c",     "avx512f",  "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8", "asimd",    "bf16",     "sve"};

}  // namespace

CpuInfo parse_cpu_info(const std::string& text) {
  CpuInfo info;
  std::istringstream lines(text);
  std::set<std::string, std::less<>> flags;
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    const std::string value = begin == std::string::npos ? "" : line.substr(begin);
    if (key == "model name" && info.model == "unknown") info.model = value;
    if ((key == "flags" || key == "Features") && flags.empty()) {
      std::istringstream words(value);
      for (std::string word; words >> word;) flags.insert(word);
    }
  }
  for (const std::string_view feature : kFeatures) {
    if (flags.contains(feature)) info.features.append(info.features.empty() ? "" : " ").append(feature);
  }
  return info;
}

}  // namespace kvarena::experiment
