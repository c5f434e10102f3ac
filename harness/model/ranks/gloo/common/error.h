#pragma once
// Nothing of it is needed; torch/csrc/distributed/c10d/ProcessGroupGloo.hpp includes it.
