#pragma once
// Text output of `kvarena estimate`.

#include <string>
#include <vector>

#include "harness/cli/estimate_method.h"
#include "harness/cost_model/estimate.h"

namespace kvarena::cli {

void print_estimates(const std::vector<cost_model::EstimateRow>& rows);
/// Prints the costs of methods measured on `model`.
void print_measured(const std::vector<MeasuredMethod>& methods, const std::string& model);
/// `source`: where the acceptance was measured; may be empty.
void print_plans(const std::vector<cost_model::PlanRow>& rows, const std::string& source);
/// Every row of the benchmark, measured and modelled.
void print_validation(const cost_model::Calibration& calibration);
void print_inputs(const cost_model::Hardware& hardware, const cost_model::ModelShape& shape);

}  // namespace kvarena::cli
