#pragma once
// A machine as data sheets describe it, and the shares of its peaks that programs reach.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kvarena {
class ParameterVisitor;
}

namespace kvarena::cost_model {

/// A published figure and where it stands. The unit is in the name of whatever holds it.
struct Figure {
  double value = 0;
  std::string source;

  void parameters(ParameterVisitor& p);
};

/// A link that bytes come over. The rate is one direction's, as published.
struct Link {
  std::string medium;  // "PCIe 5.0 x16"
  double gb_per_s = 0;
  std::string source;

  void parameters(ParameterVisitor& p);
  [[nodiscard]] double bytes_per_second() const { return gb_per_s * 1e9; }
};

/// Shares of the published peaks that programs reach. Kept apart from the peaks: a peak is printed on a data sheet, a
/// share belongs to a program that was measured, or is assumed and then says so.
struct Efficiency {
  double memory = 0.7;         // share of memory bandwidth, over a whole decoding step
  double compute = 0.6;        // share of dense 16-bit FLOP/s, in prefill
  double link = 0.86;          // share of a link's rate, in long contiguous copies
  double usable_memory = 0.9;  // share of memory that weights and caches may fill
  double kernel_us = 0;        // a kernel's launch and end, beside its bytes and operations
  std::string source =
      "assumed: memory as whole-model programs publish it (69 to 78% of HBM peak at batch 1), compute without a "
      "measurement, link 55 of 64 GB/s over PCIe 5.0 x16, usable memory vLLM's default";

  void parameters(ParameterVisitor& p);
};

/// One machine with one or more equal accelerators that share a model (tensor parallel).
struct Hardware {
  std::string name;  // name of the file, without extension
  std::string title;
  std::string notes;
  int64_t accelerators = 1;
  Figure memory_gib;           // of one accelerator
  Figure memory_gb_per_s;      // of one accelerator
  Figure compute_tflop_per_s;  // of one accelerator; dense, 16-bit inputs, 32-bit sums
  std::optional<Figure> host_memory_gib;
  /// "host": host memory to one accelerator; "peer": accelerator to accelerator; of the whole machine: "dram",
  /// "disk", "network", "store_local", "store_remote".
  std::map<std::string, Link> links;
  Efficiency efficiency;

  // Sums over all accelerators.
  [[nodiscard]] double memory_bytes() const;
  [[nodiscard]] double memory_bytes_per_second() const;
  [[nodiscard]] double flop_per_second() const;
  /// Bytes a second between host memory and all accelerators; 0 when the file names no such link.
  [[nodiscard]] double host_link_bytes_per_second() const;
  /// Throws UserError naming the machine and the links that it has.
  [[nodiscard]] const Link& link(const std::string& link_name) const;
};

/// Reads configs/hardware/<name>.json. Throws UserError with every problem of the file at once: file, key, what was
/// found, what is allowed.
[[nodiscard]] Hardware read_hardware(const std::filesystem::path& file);
[[nodiscard]] Hardware parse_hardware(const std::string& text, const std::string& name, const std::string& place);

/// The file of `name` below `folder`, or `name` itself when it is a path. Throws UserError with the nearest name and
/// all names there are.
[[nodiscard]] std::filesystem::path find_description(const std::string& name, const std::filesystem::path& folder);
/// Names of the *.json files of a folder, sorted.
[[nodiscard]] std::vector<std::string> description_names(const std::filesystem::path& folder);

}  // namespace kvarena::cost_model
