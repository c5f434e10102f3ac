#pragma once
// Command line and output files of the device's benchmark programs.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/device.h"

namespace kvarena::kernels::bench {

struct DeviceOptions {
  std::string only, out;
  int64_t samples = 7, shrink = 1;
};

/// Throws std::runtime_error naming an option that there is not.
[[nodiscard]] inline DeviceOptions parse_device_options(int argc, char** argv) {
  DeviceOptions options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--only") {
      options.only = value;
    } else if (name == "--out") {
      options.out = value;
    } else if (name == "--samples") {
      options.samples = std::max<int64_t>(1, std::stoll(value));
    } else if (name == "--shrink") {
      options.shrink = std::max<int64_t>(1, std::stoll(value));
    } else {
      throw std::runtime_error("no option " + name + "; there are --only, --samples, --shrink and --out");
    }
  }
  if (argc % 2 == 0) throw std::runtime_error(std::string("an option lacks its value: ") + argv[argc - 1]);
  return options;
}

[[nodiscard]] inline double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

/// `x` as a JSON list.
[[nodiscard]] inline std::string list(const std::vector<double>& x) {
  std::string text = "[";
  for (size_t i = 0; i < x.size(); ++i) {
    char number[32];
    std::snprintf(number, sizeof(number), "%s%.6e", i == 0 ? "" : ", ", x[i]);
    text += number;
  }
  return text + "]";
}

/// main(): `Bench` is made of the options, `measure` fills it, and it writes its rows to the file that they name, if
/// any. Where there is no device nothing is measured or written.
template <typename Bench>
int device_program(const char* name, int argc, char** argv, void (*measure)(Bench&)) {
  try {
    const DeviceOptions options = parse_device_options(argc, argv);
    const std::string absent = cuda_absent();
    if (!absent.empty()) {
      std::fprintf(stderr, "%s: skipped: %s\n", name, absent.c_str());
      return 0;
    }
    Bench bench(options);
    measure(bench);
    if (options.out.empty()) return 0;
    std::ofstream file(options.out);
    bench.write(file);
    if (!file.flush()) throw std::runtime_error("cannot write " + options.out);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

}  // namespace kvarena::kernels::bench
