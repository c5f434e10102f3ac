#pragma once
// The Porter stemmer as NLTK runs it by default.

#include <string>

namespace kvarena::metrics {

/// The stem of a lower-case ASCII word (Porter 1980, "An algorithm for suffix stripping", with the changes NLTK calls
/// NLTK_EXTENSIONS: a pool of irregular forms, "ies"/"ied" of four-letter words, y to i after a consonant only, and
/// extra rules in step 2). Words of at most two letters stay.
[[nodiscard]] std::string porter_stem(std::string word);

}  // namespace kvarena::metrics
