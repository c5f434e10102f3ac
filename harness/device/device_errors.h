#pragma once
// Errors of CUDA as users see them.

#include <stdexcept>

#include "harness/core/error.h"

namespace kvarena::device {

/// Returns what `work` gives. Where the device refuses, `lost` is called, to forget what may be spoiled, and a
/// UserError thrown.
template <typename Work, typename Lost>
auto on_device(const Work& work, const Lost& lost) {
  try {
    return work();
  } catch (const UserError&) {
    throw;
  } catch (const std::runtime_error& error) {
    lost();
    fail({.place = "the device",
          .found = error.what(),
          .expected = "a pass that ends",
          .action = "smaller batches and shorter prompts take less of its memory; \"cpu\" is always there"});
  }
}

}  // namespace kvarena::device
