#pragma once
// Is a text a syntactically valid patch? The verdicts of SWE-bench's extraction, of the Python package unidiff 0.7.3
// and of `git apply --numstat`, without running either.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::metrics {

/// SWE-bench: the first <diff>/<patch> element or ```diff/```patch block, else the first other element or block, else
/// the text before "</s>".
[[nodiscard]] std::string extract_diff(std::string_view response);

/// SWE-bench: hunks cut to their changed lines, with recounted headers; "" for a text without patches.
[[nodiscard]] std::string extract_minimal_patch(std::string_view patch);

struct UnidiffReport {
  bool parses = false;  ///< the counts are 0 when it does not
  int64_t files = 0;
  int64_t hunks = 0;
  int64_t added = 0;
  int64_t removed = 0;
  int64_t renames = 0;
};

/// unidiff.PatchSet(text)
[[nodiscard]] UnidiffReport parse_unidiff(std::string_view text);

struct NumstatReport {
  int exit_code = 0;   ///< 0, or 128 as git has it for a corrupt or empty patch
  std::string output;  ///< "added\tremoved\tpath\n" for each file; empty on failure
};

/// `git apply --numstat` (2.39) of the text, in a folder that is no repository. Base85 binary patches and epoch time
/// stamps as signs of new files are not read.
[[nodiscard]] NumstatReport git_numstat(std::string_view text);

}  // namespace kvarena::metrics
