// kvarena merge INTO PART...: one results database from those of shards.

#include <fmt/format.h>

#include "harness/cli/commands.h"
#include "harness/core/error.h"
#include "harness/core/page.h"
#include "harness/results/results_store.h"

namespace kvarena::cli {
namespace {

struct Options {
  std::filesystem::path into;
  std::vector<std::filesystem::path> parts;

  void declare(OptionSet& o) {
    o.positional("INTO", into).help("results database; made when absent");
    o.positional("PART", parts).help("databases whose results it shall hold too");
  }
};

int run(const Options& options) {
  if (options.parts.empty()) fail({.place = "PART", .found = "nothing", .expected = "the databases of shards"});
  for (const std::filesystem::path& part : options.parts) const results::ResultsReader readable(part);  // all, or none
  results::ResultsStore into = results::ResultsStore::open_or_create(options.into);
  for (const std::filesystem::path& part : options.parts) {
    const results::MergeSummary summary = into.merge(part);
    print(fmt::format("{}: {} samples added, {} were there already; {} of {} cells have ended\n", part.string(),
                      summary.samples, summary.there, summary.ended, summary.cells));
  }
  return 0;
}

}  // namespace

Command merge_command() {
  return make_command<Options>(
      {.name = "merge",
       .summary = "make one results database of several",
       .description =
           "For shards of one experiment (`kvarena run --shard`). Merging again changes nothing, and neither does the "
           "order. A part that contradicts what is there is refused, and nothing of it is merged.",
       .examples = {{"kvarena merge results.db shard-0.db shard-1.db", "then `kvarena report --database results.db`"}}},
      run);
}

}  // namespace kvarena::cli
