#include "convert/measurement.h"

#include "base/error.h"

namespace bl {

Json to_json(const ErrorMeasurement& measurement) {
  Json linears = Json::array();
  for (const LinearMeasurement& linear : measurement.linears) {
    Json curves = Json::array();
    for (const WidthCurve& curve : linear.curves) {
      curves.push_back(
          {{"bits", curve.bits}, {"group_size", curve.group_size}, {"errors", curve.errors}});
    }
    linears.push_back({{"key", linear.key},
                       {"in", linear.in},
                       {"out", linear.out},
                       {"sensitivity", linear.sensitivity},
                       {"curves", std::move(curves)}});
  }
  Json json = {{"format", "bitloom-measurement-1"},
               {"tokens", measurement.tokens},
               {"sensitivity_tokens", measurement.sensitivity_tokens},
               {"linears", std::move(linears)}};
  if (!measurement.folds.empty()) json["folds"] = name_of(measurement.folds);
  return json;
}

ErrorMeasurement measurement_from_json(const Json& json, const std::string& what) {
  ErrorMeasurement result;
  try {
    if (json.at("format") != "bitloom-measurement-1") {
      fail(ErrorCode::kInvalidFile, "{} is not a measurement of this version", what);
    }
    result.tokens = json.at("tokens").get<std::int64_t>();
    result.sensitivity_tokens = json.at("sensitivity_tokens").get<std::int64_t>();
    const auto folds = json.value("folds", name_of(FoldSet{}));
    if (!folds_named(folds)) {
      fail(ErrorCode::kInvalidFile, "{}: there is no fold \"{}\"", what, folds);
    }
    result.folds = *folds_named(folds);
    for (const Json& entry : json.at("linears")) {
      LinearMeasurement linear;
      linear.key = entry.at("key").get<std::string>();
      linear.in = entry.at("in").get<std::int64_t>();
      linear.out = entry.at("out").get<std::int64_t>();
      linear.sensitivity = entry.at("sensitivity").get<double>();
      for (const Json& curve : entry.at("curves")) {
        linear.curves.push_back({curve.at("bits").get<int>(),
                                 curve.at("group_size").get<std::int32_t>(),
                                 curve.at("errors").get<std::vector<double>>()});
        if (std::ssize(linear.curves.back().errors) * 32 != linear.in) {
          fail(ErrorCode::kInvalidFile, "{}: a curve of {} has {} errors for {} inputs", what,
               linear.key, linear.curves.back().errors.size(), linear.in);
        }
      }
      result.linears.push_back(std::move(linear));
    }
  } catch (const Json::exception& error) {
    fail(ErrorCode::kInvalidFile, "{} is not a measurement: {}", what, error.what());
  }
  return result;
}

}  // namespace bl
