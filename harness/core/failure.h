#pragma once
// Turns an exception into the reason of a failure.

#include <exception>
#include <new>
#include <string>
#include <utility>

namespace kvarena {

/// Runs code that may throw anything and returns why it failed, "" when it did not.
template <typename Work>
std::string failure_of(Work&& work) {
  try {
    std::forward<Work>(work)();
    return "";
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "an exception without a message" : error.what();
  } catch (...) {
    return "something thrown that is no std::exception";
  }
}

}  // namespace kvarena
