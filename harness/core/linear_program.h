#pragma once
// Small linear and integer programmes, solved exactly by GLPK.

#include <vector>

namespace kvarena {

/// maximise gain . x  subject to  rows x <= limits, x >= 0.
struct LinearProgram {
  std::vector<double> gain;               // [variables]
  std::vector<std::vector<double>> rows;  // [constraints][variables]
  std::vector<double> limits;             // [constraints]
  bool whole = false;                     // x in whole numbers, by branch and cut
};

/// The optimal x. Throws InternalError when the programme is infeasible or unbounded: with non-negative rows and
/// limits, and every gaining variable limited by a row, it is neither.
[[nodiscard]] std::vector<double> solve(const LinearProgram& program);

}  // namespace kvarena
