#pragma once
// Turns an exception into the reason of a failure.

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "harness/core/logged_error.h"

namespace kvarena {

/// The message of an exception without libtorch's account of where it was raised: its addresses differ from run to run.
[[nodiscard]] inline std::string message_of(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find("\nException raised from "));
}

/// Runs code that may throw anything and returns why it failed, "" when it did not; behind the first line an error's
/// log.
template <typename Work>
std::string failure_of(Work&& work) {
  try {
    std::forward<Work>(work)();
    return "";
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const LoggedError& error) {
    return message_of(error) + "\n" + error.log();
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "an exception without a message" : message_of(error);
  } catch (...) {
    return "something thrown that is no std::exception";
  }
}

}  // namespace kvarena
