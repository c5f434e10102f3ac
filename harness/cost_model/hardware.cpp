#include "harness/cost_model/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/cost_model/description.h"

namespace kvarena::cost_model {
namespace {

using nlohmann::json;

const std::vector<std::string> kKeys = {"title",           "notes",           "accelerators",
                                        "memory_gib",      "memory_gb_per_s", "compute_tflop_per_s",
                                        "host_memory_gib", "links",           "efficiency"};
const std::vector<std::string> kLinks = {"host", "peer", "dram", "disk", "network", "store_local", "store_remote"};

struct Heading {
  std::string title;
  std::string notes;
  int64_t accelerators = 1;

  void parameters(ParameterVisitor& p) {
    p("title", title).required().doc("the machine as its maker calls it");
    p("notes", notes).doc("what a reader should know");
    p("accelerators", accelerators).min(1).doc("equal ones that share a model");
  }
};

void check_names(const json& object, const std::string& place, const std::vector<std::string>& allowed,
                 std::vector<std::string>& problems) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(allowed, key) != allowed.end()) continue;
    problems.push_back(describe(ErrorParts{.place = fmt::format("{}.{}", place, key),
                                           .found = "an unknown key",
                                           .expected = fmt::format("one of: {}", fmt::join(allowed, ", ")),
                                           .nearest = nearest_name(key, allowed)}));
  }
}

void check_source(const std::string& source, const std::string& place, std::vector<std::string>& problems) {
  if (!source.empty()) return;
  problems.push_back(describe(
      ErrorParts{.place = place + ".source", .found = "an empty string", .expected = "where the figure stands"}));
}

Figure read_figure(const json& whole, const char* key, const std::string& place, std::vector<std::string>& problems) {
  Figure figure;
  const std::string where = fmt::format("{}.{}", place, key);
  if (!whole.contains(key)) {
    problems.push_back(
        describe(ErrorParts{.place = where, .found = "nothing", .expected = R"({"value": ..., "source": "..."})"}));
    return figure;
  }
  const size_t before = problems.size();
  read_part(whole[key], where, figure, problems);
  if (problems.size() == before) check_source(figure.source, where, problems);
  return figure;
}

std::map<std::string, Link> read_links(const json& value, const std::string& place,
                                       std::vector<std::string>& problems) {
  std::map<std::string, Link> links;
  if (!value.is_object()) {
    problems.push_back(
        describe(ErrorParts{.place = place, .found = brief(value), .expected = "an object of links by name"}));
    return links;
  }
  check_names(value, place, kLinks, problems);
  for (const auto& [name, description] : value.items()) {
    const std::string where = fmt::format("{}.{}", place, name);
    const size_t before = problems.size();
    Link link;
    read_part(description, where, link, problems);
    if (problems.size() == before) check_source(link.source, where, problems);
    links.emplace(name, link);
  }
  return links;
}

}  // namespace

void Figure::parameters(ParameterVisitor& p) {
  p("value", value).above(0).required().doc("in the unit that the key's name ends with");
  p("source", source).required().doc("where the figure stands");
}

void Link::parameters(ParameterVisitor& p) {
  p("medium", medium).required().doc("what it is made of, with generation and width");
  p("gb_per_s", gb_per_s).above(0).required().doc("one direction, published");
  p("source", source).required().doc("where the figure stands");
}

void Efficiency::parameters(ParameterVisitor& p) {
  p("memory", memory).above(0).max(1).doc("share of memory bandwidth that a decoding step reaches");
  p("compute", compute).above(0).max(1).doc("share of dense 16-bit FLOP/s that prefill reaches");
  p("link", link).above(0).max(1).doc("share of a link's rate that long copies reach");
  p("usable_memory", usable_memory).above(0).max(1).doc("share of memory that weights and caches may fill");
  p("kernel_us", kernel_us).min(0).doc("of each kernel of a pass, beside its bytes and operations");
  p("source", source).required().doc("what was measured, or that it is assumed");
}

double Hardware::memory_bytes() const {
  return static_cast<double>(accelerators) * memory_gib.value * 1024.0 * 1024.0 * 1024.0;
}
double Hardware::memory_bytes_per_second() const {
  return static_cast<double>(accelerators) * memory_gb_per_s.value * 1e9;
}
double Hardware::flop_per_second() const {
  return static_cast<double>(accelerators) * compute_tflop_per_s.value * 1e12;
}
double Hardware::host_link_bytes_per_second() const {
  const auto found = links.find("host");
  return found == links.end() ? 0 : static_cast<double>(accelerators) * found->second.bytes_per_second();
}

const Link& Hardware::link(const std::string& link_name) const {
  const auto found = links.find(link_name);
  if (found != links.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [present, link] : links) names.push_back(present);
  fail({.place = fmt::format("hardware \"{}\"", name),
        .found = fmt::format("no link \"{}\"", link_name),
        .expected = names.empty() ? "a file with links" : fmt::format("one of: {}", fmt::join(names, ", "))});
}

Hardware parse_hardware(const std::string& text, const std::string& name, const std::string& place) {
  const json whole = parse_object(text, place);
  std::vector<std::string> problems;
  check_names(whole, place, kKeys, problems);

  Hardware hardware{.name = name};
  json heading_keys = json::object();
  for (const char* key : {"title", "notes", "accelerators"}) {
    if (whole.contains(key)) heading_keys[key] = whole[key];
  }
  Heading heading;
  read_part(heading_keys, place, heading, problems);
  hardware.title = heading.title;
  hardware.notes = heading.notes;
  hardware.accelerators = heading.accelerators;
  hardware.memory_gib = read_figure(whole, "memory_gib", place, problems);
  hardware.memory_gb_per_s = read_figure(whole, "memory_gb_per_s", place, problems);
  hardware.compute_tflop_per_s = read_figure(whole, "compute_tflop_per_s", place, problems);
  if (whole.contains("host_memory_gib")) {
    hardware.host_memory_gib = read_figure(whole, "host_memory_gib", place, problems);
  }
  if (whole.contains("links")) hardware.links = read_links(whole["links"], place + ".links", problems);
  if (whole.contains("efficiency")) {
    read_part(whole["efficiency"], place + ".efficiency", hardware.efficiency, problems);
  }
  throw_problems(problems);
  return hardware;
}

Hardware read_hardware(const std::filesystem::path& file) {
  return parse_hardware(read_file(file), file.stem().string(), file.string());
}

}  // namespace kvarena::cost_model
