#pragma once
// Mean and covariance of a prompt's queries as they are before rotation.

#include "harness/method/method.h"

namespace kvarena {

/// Counts in the queries from position moments.left_out on. Until finish_moments() the members hold plain sums.
void add_moments(QueryMoments& moments, const LayerShape& shape, const Rotation& rotation, const LayerQueries& queries);

/// From sums to mean and covariance.
void finish_moments(QueryMoments& moments);

}  // namespace kvarena
