#include "harness/store/records.h"

namespace kvarena::store {

std::string_view name(Clock value) {
  switch (value) {
    case Clock::none: return "none";
    case Clock::measured: return "measured";
    case Clock::modelled: return "modelled";
  }
  return "";
}

std::string_view name(Storage value) {
  switch (value) {
    case Storage::real: return "real";
    case Storage::emulated: return "emulated";
    case Storage::simulated: return "simulated";
  }
  return "";
}

std::string_view name(CellKind value) {
  switch (value) {
    case CellKind::quality: return "quality";
    case CellKind::timing: return "timing";
  }
  return "";
}

std::string_view name(CellState value) {
  switch (value) {
    case CellState::pending: return "pending";
    case CellState::running: return "running";
    case CellState::done: return "done";
    case CellState::failed: return "failed";
    case CellState::inactive: return "inactive";
  }
  return "";
}

std::string_view name(RunState value) {
  switch (value) {
    case RunState::running: return "running";
    case RunState::finished: return "finished";
    case RunState::interrupted: return "interrupted";
    case RunState::failed: return "failed";
  }
  return "";
}

}  // namespace kvarena::store
