#include "harness/core/linear_program.h"

#include <fmt/format.h>
#include <glpk.h>

#include <memory>

#include "harness/core/error.h"

namespace kvarena {
namespace {

std::vector<double> solve_whole(glp_prob* problem, int variables) {
  glp_iocp settings;
  glp_init_iocp(&settings);
  settings.msg_lev = GLP_MSG_OFF;
  settings.presolve = GLP_ON;
  const int outcome = glp_intopt(problem, &settings);
  const int status = glp_mip_status(problem);
  KVARENA_ASSERT(outcome == 0 && status == GLP_OPT, fmt::format("outcome={} status={}", outcome, status));
  std::vector<double> x(variables);
  for (int j = 0; j < variables; ++j) x[j] = glp_mip_col_val(problem, j + 1);
  return x;
}

}  // namespace

std::vector<double> solve(const LinearProgram& program) {
  const auto variables = static_cast<int>(program.gain.size());
  const auto constraints = static_cast<int>(program.rows.size());
  const std::unique_ptr<glp_prob, decltype(&glp_delete_prob)> problem(glp_create_prob(), &glp_delete_prob);
  glp_set_obj_dir(problem.get(), GLP_MAX);
  glp_add_cols(problem.get(), variables);
  for (int j = 0; j < variables; ++j) {
    glp_set_col_bnds(problem.get(), j + 1, GLP_LO, 0, 0);
    glp_set_obj_coef(problem.get(), j + 1, program.gain[j]);
    if (program.whole) glp_set_col_kind(problem.get(), j + 1, GLP_IV);
  }
  glp_add_rows(problem.get(), constraints);
  std::vector<int> columns(variables + 1);
  for (int j = 0; j < variables; ++j) columns[j + 1] = j + 1;
  for (int i = 0; i < constraints; ++i) {
    glp_set_row_bnds(problem.get(), i + 1, GLP_UP, 0, program.limits[i]);
    std::vector<double> values{0};  // GLPK counts from 1
    values.insert(values.end(), program.rows[i].begin(), program.rows[i].end());
    glp_set_mat_row(problem.get(), i + 1, variables, columns.data(), values.data());
  }
  if (program.whole) return solve_whole(problem.get(), variables);
  glp_smcp settings;
  glp_init_smcp(&settings);
  settings.msg_lev = GLP_MSG_OFF;
  const int outcome = glp_simplex(problem.get(), &settings);
  const int status = glp_get_status(problem.get());
  KVARENA_ASSERT(outcome == 0 && status == GLP_OPT, fmt::format("outcome={} status={}", outcome, status));
  std::vector<double> x(variables);
  for (int j = 0; j < variables; ++j) x[j] = glp_get_col_prim(problem.get(), j + 1);
  return x;
}

}  // namespace kvarena
