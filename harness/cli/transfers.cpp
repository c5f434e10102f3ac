// kvarena transfers: what contiguous and gathered entries take over a link, measured.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/device_transfers.h"
#include "harness/cli/estimate_model.h"
#include "harness/core/error.h"
#include "harness/core/home.h"
#include "harness/core/page.h"
#include "harness/core/terminal.h"
#include "harness/storage/hierarchy.h"

namespace kvarena::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string model = kDefaultModel;
  std::string link = "real";
  int64_t context = 32768;
  double share = 0.01;
  int64_t repeats = 5;
  bool device = false;
  bool json = false;

  void declare(OptionSet& o) {
    o.option("model", "SHAPE", model).help("whose entries: a name in configs/shapes, a .gguf file or a folder");
    o.option("link", "NAME", link)
        .help("\"real\": copies between memories of this machine; else one that is described");
    o.option("context", "N", context).help("entries of a head that lie behind the link");
    o.option("share", "SHARE", share).help("of them that are chosen");
    o.option("repeats", "N", repeats).help("of which the median counts");
    o.flag("device", device).help("from pinned memory to a CUDA device, gathered by a kernel");
    o.flag("json", json).help("write JSON");
  }
};

/// One layer's keys and values behind a link.
struct Layer {
  int64_t rows = 0;       // keys and values of all heads
  int64_t row_bytes = 0;  // a head's key or value
};

struct Measured {
  std::string what;
  int64_t rows = 0;
  double seconds = 0;

  [[nodiscard]] double per_byte() const { return seconds / static_cast<double>(rows); }  // in rows of equal size
};

/// Brings `rows` rows, every `step`-th of the layer; the median of the link's own clock.
double median_seconds(const storage::Hierarchy& tiers, const std::shared_ptr<storage::Block>& block, const Layer& layer,
                      int64_t rows, int64_t step, int64_t repeats) {
  std::vector<std::byte> arrived(static_cast<size_t>(rows * layer.row_bytes));
  std::vector<storage::ReadPiece> pieces;
  pieces.reserve(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    pieces.push_back(
        {.at = i * step * layer.row_bytes, .memory = arrived.data() + i * layer.row_bytes, .bytes = layer.row_bytes});
  }
  std::vector<double> seconds;
  for (int64_t i = 0; i < repeats; ++i) {
    storage::Transfer transfer = tiers.load(Tier::host).read(block, pieces);
    transfer.wait();
    seconds.push_back(transfer.link_seconds());
  }
  std::ranges::nth_element(seconds, seconds.begin() + std::ssize(seconds) / 2);
  return seconds[seconds.size() / 2];
}

int64_t chosen_rows(const Layer& layer, double share) {
  return std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(layer.rows)));
}

std::vector<Measured> measure_device(const Layer& layer, double share, int64_t repeats) {
  const int64_t chosen = chosen_rows(layer, share);
  const DeviceTransferTimes times = time_device_transfers(layer.rows, chosen, layer.row_bytes, repeats);
  return {{"all, contiguous", layer.rows, times.all},
          {"chosen, contiguous", chosen, times.chosen},
          {"chosen, gathered", chosen, times.gathered}};
}

std::vector<Measured> measure(const storage::LinkSpec& link, const Layer& layer, double share, int64_t repeats) {
  const int64_t chosen = chosen_rows(layer, share);
  const storage::Hierarchy tiers({{.tier = Tier::host, .link = link}});
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto block = tiers.storage(Tier::host).allocate(ledger, layer.rows * layer.row_bytes);
  const std::vector<std::byte> content(static_cast<size_t>(layer.rows * layer.row_bytes), std::byte{1});
  tiers.offload(Tier::host).write(block, {{.at = 0, .memory = content.data(), .bytes = std::ssize(content)}}).wait();
  const auto timed = [&](int64_t rows, int64_t step) {
    return median_seconds(tiers, block, layer, rows, step, repeats);
  };
  return {{"all, contiguous", layer.rows, timed(layer.rows, 1)},
          {"chosen, contiguous", chosen, timed(chosen, 1)},
          {"chosen, gathered", chosen, timed(chosen, layer.rows / chosen)}};
}

int run(const Options& options) {
  if (options.context < 1 || options.repeats < 1)
    fail({.place = "--context, --repeats", .found = "less than 1", .expected = "at least 1"});
  if (!(options.share > 0 && options.share <= 1))
    fail({.place = "--share", .found = fmt::format("{}", options.share), .expected = "above 0 and at most 1"});
  const cost_model::ModelShape shape = find_shape(options.model);
  if (shape.kv_heads < 1 || shape.head_dim < 1)
    fail({.place = "--model", .found = shape.title, .expected = "a model with keys and values of heads"});
  storage::LinkSpec link = storage::link_named(options.link, "--link");
  if (options.device && link.emulated())
    fail({.place = "--link", .found = options.link + " beside --device", .expected = "\"real\": nothing is emulated"});
  if (options.device) link.source = "this machine's bus and device";
  const Layer layer{.rows = 2 * shape.kv_heads * options.context, .row_bytes = 2 * shape.head_dim};
  const std::vector<Measured> all = options.device ? measure_device(layer, options.share, options.repeats)
                                                   : measure(link, layer, options.share, options.repeats);

  json rows = json::array();
  std::vector<std::vector<std::string>> table = {
      {"a layer's entries", "bytes", "ms", "GB/s", "of the whole", "a byte, over the whole's"}};
  for (const Measured& one : all) {
    const double bytes = static_cast<double>(one.rows * layer.row_bytes);
    const double of_whole = one.seconds / all[0].seconds, a_byte = one.per_byte() / all[0].per_byte();
    rows.push_back({{"what", one.what},
                    {"bytes", one.rows * layer.row_bytes},
                    {"seconds", one.seconds},
                    {"of_whole", of_whole},
                    {"a_byte_over_whole", a_byte}});
    table.push_back({one.what, bytes_text(one.rows * layer.row_bytes), fmt::format("{:.3f}", 1e3 * one.seconds),
                     fmt::format("{:.1f}", 1e-9 * bytes / one.seconds), fmt::format("{:.1f}%", 100 * of_whole),
                     fmt::format("{:.1f}x", a_byte)});
  }
  if (options.json) {
    print(fmt::format("{}\n", json{{"model", shape.name},
                                   {"link", link.name},
                                   {"link_source", link.source},
                                   {"emulated", link.emulated()},
                                   {"device", options.device},
                                   {"context", options.context},
                                   {"share", options.share},
                                   {"rows", rows}}
                                  .dump(2)));
    return 0;
  }
  print(Page()
            .bold(fmt::format("{}, {} entries behind \"{}\", {:g}% chosen", shape.title, options.context, link.name,
                              100 * options.share))
            .text("\n")
            .columns(table)
            .text(fmt::format("  {}: {}\n", link.emulated() ? "emulated" : "measured", link.source)));
  return 0;
}

}  // namespace

Command transfers_command() {
  return make_command<Options>(
      {.name = "transfers",
       .summary = "measure contiguous and gathered transfers of a cache's entries",
       .description =
           "One layer's keys and values lie behind a link; all of them come in one piece, then the chosen share in one "
           "piece and entry by entry. A described link takes the time that its description says; with --device they "
           "come from pinned memory to a CUDA device.",
       .examples = {{"kvarena transfers", "this machine's memory, the default model's entries"},
                    {"kvarena transfers --model mistral-7b-v0.2 --link pcie4_x16", "an emulated link"}}},
      run);
}

}  // namespace kvarena::cli
