#include "harness/cost_model/acceptance_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/cost_model/description.h"

namespace kvarena::cost_model {
namespace {

using nlohmann::json;

struct CurvePart {
  double keep = 0;
  std::string drafter;
  std::optional<double> independent;
  int64_t max_draft_length = 64;

  void parameters(ParameterVisitor& p) {
    p("keep", keep).above(0).max(1).required().doc("share of the cache that drafts are made on");
    p("drafter", drafter).doc("name of the compressor");
    p("independent", independent).min(0).max(1).doc("probability of each token, instead of points");
    p("max_draft_length", max_draft_length).min(1).max(4096).doc("how far an independent curve is drawn");
  }
};

struct PointPart {
  AcceptancePoint point;

  void parameters(ParameterVisitor& p) {
    p("draft_length", point.draft_length).min(1).required();
    p("rate", point.rate).min(0).max(1).required().doc("accepted over drafted tokens");
  }
};

AcceptanceCurve read_curve(const json& value, const CurvePart& part, const std::string& place) {
  if (part.independent.has_value() == value.contains("points")) {
    fail({.place = place,
          .found = part.independent ? "\"independent\" and \"points\"" : "neither \"independent\" nor \"points\"",
          .expected = "one of them"});
  }
  if (part.independent) return AcceptanceCurve::independent(*part.independent, part.max_draft_length);
  std::vector<AcceptancePoint> points;
  std::vector<std::string> problems;
  for (size_t i = 0; i < value["points"].size(); ++i) {
    PointPart point;
    read_part(value["points"][i], fmt::format("{}.points[{}]", place, i), point, problems);
    points.push_back(point.point);
  }
  throw_problems(problems);
  return AcceptanceCurve::measured(std::move(points));
}

}  // namespace

DecodingChoices AcceptanceFile::choices() const {
  DecodingChoices found;
  int64_t longest = 0;
  for (const Curve& curve : curves) {
    if (std::ranges::find(found.kept, curve.keep) == found.kept.end()) found.kept.push_back(curve.keep);
    longest = std::max(longest, curve.acceptance.max_draft_length());
  }
  for (int64_t length = 1; length <= longest; ++length) found.draft_lengths.push_back(length);
  return found;
}

const AcceptanceFile::Curve* AcceptanceFile::best(int64_t draft_length, double kept) const {
  const Curve* found = nullptr;
  for (const Curve& curve : curves) {
    if (curve.keep != kept || draft_length > curve.acceptance.max_draft_length()) continue;
    if (!found || curve.acceptance.rate(draft_length) > found->acceptance.rate(draft_length)) found = &curve;
  }
  return found;
}

AcceptanceFile parse_acceptance(const std::string& text, const std::string& place) {
  const json whole = parse_object(text, place);
  const json list = whole.value("curves", json());
  if (!list.is_array() || list.empty()) {
    fail({.place = place + ".curves", .found = brief(list), .expected = "a list of curves, one for each share kept"});
  }
  AcceptanceFile file{.source = whole.value("source", "")};
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}.curves[{}]", place, i);
    CurvePart part;
    throw_problems(read_parameters(list[i], where, [&](ParameterVisitor& p) { part.parameters(p); }, {"points"}));
    file.curves.push_back({.keep = part.keep, .drafter = part.drafter, .acceptance = read_curve(list[i], part, where)});
  }
  return file;
}

AcceptanceFile read_acceptance(const std::filesystem::path& file) {
  return parse_acceptance(read_file(file), file.string());
}

}  // namespace kvarena::cost_model
