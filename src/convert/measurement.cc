#include "convert/measurement.h"

#include "base/error.h"
#include "base/whole_number.h"

namespace bl {
namespace {

WidthCurve curve_from_json(const Json& json, const std::string& where) {
  const auto bits = whole_number(json.at("bits"));
  const auto slots = whole_number(json.at("group_size"));
  if (bits < 0 || bits > 8 || !is_writable_group(static_cast<int>(bits), slots)) {
    fail(ErrorCode::kInvalidFile, "{}: {} bits in groups of {} cannot be", where, bits, slots);
  }
  WidthCurve curve{static_cast<int>(bits), static_cast<std::int32_t>(slots),
                   json.at("errors").get<std::vector<double>>()};
  for (const double error : curve.errors) {
    if (!(error >= 0)) fail(ErrorCode::kInvalidFile, "{}: an error is {}", where, error);
  }
  return curve;
}

LinearMeasurement linear_from_json(const Json& json, const std::string& what) {
  LinearMeasurement linear{.key = json.at("key").get<std::string>(),
                           .in = whole_number(json.at("in")),
                           .out = whole_number(json.at("out")),
                           .sensitivity = json.at("sensitivity").get<double>()};
  const std::string where = what + ": " + linear.key;
  if (!(linear.sensitivity >= 0)) {
    fail(ErrorCode::kInvalidFile, "{}: the sensitivity is {}", where, linear.sensitivity);
  }
  for (const Json& entry : json.at("curves")) {
    linear.curves.push_back(curve_from_json(entry, where));
    const std::size_t errors = linear.curves.back().errors.size();
    if (linear.in % 32 != 0 || static_cast<std::int64_t>(errors) != linear.in / 32) {
      fail(ErrorCode::kInvalidFile, "{}: a curve has {} errors for {} inputs", where, errors,
           linear.in);
    }
  }
  if (linear.curves.empty()) fail(ErrorCode::kInvalidFile, "{} has no curves", where);
  return linear;
}

}  // namespace

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

bool is_writable_group(int bits, std::int64_t slots) {
  const bool has_width = (bits >= 2 && bits <= 6) || bits == 8;
  return has_width && slots >= 32 && slots <= 1 << 16 && slots % 32 == 0;
}

ErrorMeasurement measurement_from_json(const Json& json, const std::string& what) {
  ErrorMeasurement result;
  try {
    if (json.at("format") != "bitloom-measurement-1") {
      fail(ErrorCode::kInvalidFile, "{} is not a measurement of this version", what);
    }
    result.tokens = whole_number(json.at("tokens"));
    result.sensitivity_tokens = whole_number(json.at("sensitivity_tokens"));
    const auto folds = json.value("folds", name_of(FoldSet{}));
    if (!folds_named(folds)) {
      fail(ErrorCode::kInvalidFile, "{}: there is no fold \"{}\"", what, folds);
    }
    result.folds = *folds_named(folds);
    for (const Json& entry : json.at("linears")) {
      result.linears.push_back(linear_from_json(entry, what));
    }
  } catch (const Json::exception& error) {
    fail(ErrorCode::kInvalidFile, "{} is not a measurement: {}", what, error.what());
  }
  return result;
}

}  // namespace bl
