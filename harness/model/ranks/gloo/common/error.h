#pragma once
// Empty: torch/csrc/distributed/c10d/ProcessGroupGloo.hpp includes it and uses nothing of it.
