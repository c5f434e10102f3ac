#pragma once
// Memory and children of a process (Linux, /proc).

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace kvarena::experiment {

/// Resident bytes of memory, private or shared, not of mapped files; nothing when the process is gone.
[[nodiscard]] std::optional<int64_t> own_memory(pid_t pid);

/// Processes that `pid` started and that live.
[[nodiscard]] std::vector<pid_t> children_of(pid_t pid);

}  // namespace kvarena::experiment
