#pragma once
// Error messages for users, and assertions about the program itself.

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena {

/// The user's mistake or the machine's refusal: a bad file, a bad config, a full disk. `what()` is the whole
/// message, ready for stderr. Everything that leaves a library as an exception for the user is a UserError;
/// the CLI prints it and exits with 2.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The five parts of a message; empty parts are left out.
struct ErrorParts {
  std::string place;     // "configs/quickstart.json: methods[0].keep"
  std::string found;     // "1.4"
  std::string expected;  // "a fraction above 0 and at most 1"
  std::string nearest;   // "snapkv", printed as: did you mean "snapkv"?
  std::string action;    // "to keep a count write \"tokens\": 1024"
};

/// "place: found F, expected E; did you mean \"N\"? A"
[[nodiscard]] std::string describe(const ErrorParts& parts);

/// Throws UserError(describe(parts)).
[[noreturn]] void fail(const ErrorParts& parts);

/// The candidate that `word` is likely meant to be, whatever its case: one that has it between '_', '-' or '/' ("f1" of
/// "qa_f1"), else the nearest by edit distance; empty when none is near enough.
[[nodiscard]] std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

/// A broken contract between modules, never the user's mistake. Carries the condition and its place.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
[[noreturn]] void raise_internal(const char* condition, const std::string& values, std::source_location where);
}

/// KVARENA_ASSERT(kv_len == n, fmt::format("kv_len={} n={}", kv_len, n)): checked in every build, throws InternalError.
#define KVARENA_ASSERT(condition, values)                                                       \
  do {                                                                                          \
    if (!(condition)) [[unlikely]] {                                                            \
      ::kvarena::detail::raise_internal(#condition, (values), std::source_location::current()); \
    }                                                                                           \
  } while (false)

}  // namespace kvarena
