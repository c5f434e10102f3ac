#pragma once
// Inside the experiment folder: `--set key.path=value` and its short forms, applied to the config before it is read.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/experiment/config.h"

namespace kvarena::experiment {

/// Changes `config` and returns problems as finished messages. The value of --set is JSON, or else a string. A path
/// steps into lists by number ("methods[1]", "methods.1") or by an entry's name or label ("methods.snapkv"), which
/// means every entry of that name; the number behind the last entry adds one. A key that the entry's matrix sweeps is
/// swept no more. An entry whose label does not tell the setting gets a label that does, "mine [keep=0.1]"; with
/// another name it loses its label.
[[nodiscard]] std::vector<std::string> apply_overrides(nlohmann::json& config, const Overrides& overrides);

/// The page that a run's config asked for, overrides applied; "" for none.
[[nodiscard]] std::string report_of(const results::RunRecord& run);

/// The overrides as they were given, for the record.
[[nodiscard]] std::string overrides_json(const Overrides& overrides);

}  // namespace kvarena::experiment
