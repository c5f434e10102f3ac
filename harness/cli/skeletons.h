#pragma once
// The first text of a new method's file: it compiles, registers itself and passes the conformance suite.

#include <array>
#include <string>
#include <string_view>

namespace kvarena::cli {

struct Skeleton {
  std::string_view family;   // value of `new-method --family`
  std::string_view folder;   // in methods/
  std::string_view suffix;   // suffix of the class's name
  std::string_view macro;    // that registers it, without KVARENA_
  std::string_view idea;     // the algorithm of the text until it is changed, as what a method "that ..." does
  std::string_view summary;  // of the algorithm, as it is registered
  std::string_view text;     // of the file up to the line that registers it, with @Class@
};

/// The skeletons: dropping, codec, retrieval, verification.
[[nodiscard]] const std::array<Skeleton, 4>& skeletons();

/// The text for a method called `name` (lower case with underscores).
[[nodiscard]] std::string fill_skeleton(const Skeleton& skeleton, const std::string& name);

}  // namespace kvarena::cli
