#include "reports/byte_classes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "reports/pooled.h"

namespace kvarena::reports {

std::map<std::string, double> byte_shares(const ExperimentData& data) {
  std::map<std::string, double> shares;
  for (const std::string& method : data.methods()) {
    const Pool pool = pool_of(data, method, results::CellKind::quality, metrics::kKeptBytesFraction.name);
    if (!pool.values.empty()) shares[method] = metrics::mean_of(pool.values);
  }
  return shares;
}

std::map<std::string, int> byte_classes(const ExperimentData& data) {
  constexpr double kWidest = 8.0 / 7;  // of a class, largest share by least
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [method, share] : byte_shares(data)) {
    if (method != data.baseline()) order.emplace_back(share, method);
  }
  std::ranges::sort(order);
  std::map<std::string, int> classes;
  double least = 0;
  int number = -1;
  for (const auto& [share, method] : order) {
    if (number < 0 || share > least * kWidest) {
      least = share;
      ++number;
    }
    classes[method] = number;
  }
  return classes;
}

}  // namespace kvarena::reports
