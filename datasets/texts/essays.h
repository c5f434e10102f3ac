#pragma once
// Original English prose without any fact in it that a question could be about: hay for needles. The project wrote the
// sentences and the subjects; a seed decides how they are put together.

#include <cstddef>
#include <cstdint>
#include <string>

namespace kvarena::datasets {

/// Essay `number` of `seed`: a title line and seven to ten paragraphs, about 4 kB. Equal arguments give equal text;
/// essays differ in subject, order and wording. Sentences end in a full stop followed by a blank or a line end.
[[nodiscard]] std::string write_essay(uint64_t seed, size_t number);

/// Essays 0, 1, 2, ... one after another until the text has at least `bytes` bytes.
[[nodiscard]] std::string write_essays(uint64_t seed, size_t bytes);

}  // namespace kvarena::datasets
