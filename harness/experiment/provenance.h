#pragma once
// Provenance of results: source revision, build, machine.

#include "harness/results/records.h"

namespace kvarena::experiment {

/// A RunRecord with everything known without the config: git revision, compiler and flags, library versions, host,
/// kernel, CPU model, the CPU features that kernels choose by, threads.
[[nodiscard]] results::RunRecord collect_provenance();

}  // namespace kvarena::experiment
