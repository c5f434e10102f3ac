#pragma once
// Prefills as files: a prompt that was read once is read no more, by this run or a later one.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/engine/session/prefill.h"

namespace kvarena {

/// Bytes that kept prompts may take: KVARENA_PREFILLS, in GiB, 0 where it is not set. Throws UserError on what is no
/// such number.
[[nodiscard]] int64_t kept_prefill_bytes();

/// A bounded folder of prefills, one checksummed file each, named by a hash of all that decides its bits. Any number of
/// processes may use it at a time. A file that is damaged, cut or of something else is as good as none.
class PrefillFolder {
 public:
  /// `computer`: all that decides the bits beside tokens and needs, as text: weights, number types, program,
  /// instruction set. Prompts that took `least_seconds` or more are kept, in files of at most `most_bytes` together.
  /// Files longest unused go first, but none that was used since this object was made: of prompts in turn, more than
  /// there is room for, the first are found again.
  PrefillFolder(std::filesystem::path folder, std::string computer, int64_t most_bytes, double least_seconds = 0.25);

  /// Gives what prefill() gives, bit for bit but for its times, from the folder where it is there. A disk that refuses
  /// costs the file alone. Throws what prefill() throws.
  [[nodiscard]] Prefill read(Transformer& model, std::span<const int32_t> tokens, const Needs& needs,
                             std::shared_ptr<const ModelFacts> facts) const;

 private:
  [[nodiscard]] std::string key_of(std::span<const int32_t> tokens, const Needs& needs) const;
  [[nodiscard]] bool make_room(int64_t bytes) const;
  void keep(const std::filesystem::path& file, const std::string& key, std::vector<std::byte> bytes) const;

  std::filesystem::path folder_;
  std::string computer_;
  int64_t most_bytes_;
  double least_seconds_;
  std::filesystem::file_time_type began_;
};

}  // namespace kvarena
