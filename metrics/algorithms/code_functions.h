#pragma once
// Functions in program text of six languages, found without a grammar.

#include <string_view>

namespace kvarena::metrics {

/// The first function of `code` with its body, without comments or decorators before it; empty where there is none.
/// Comments and strings are passed over; a body ends at its closing brace, in Python at the first line that is not
/// deeper. Languages: python, java, typescript, rust, cpp, go; any other has no functions. In Java and Python methods
/// count, and in Rust; in C++ and TypeScript those outside classes alone, in Go those without a receiver.
[[nodiscard]] std::string_view first_function(std::string_view code, std::string_view language);

/// The code of an answer, as RepoQA's sanitize_output finds it: the first function in its blocks between lines of ```;
/// without one the first block; without a block all of it.
[[nodiscard]] std::string_view code_of_answer(std::string_view answer, std::string_view language);

}  // namespace kvarena::metrics
