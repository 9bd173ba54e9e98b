#pragma once
// What a conversion will take, said and checked before hours are spent.

#include <filesystem>
#include <vector>

#include "convert/converter.h"
#include "convert_options.h"

namespace bl {

// A rate that will be made. Where a size decides, the rate is not known before measuring.
struct PlannedRate {
  std::optional<double> bits;
  std::uint64_t bytes = 0;  // about, of the weight files
  std::filesystem::path result;
};

// Logs tokens, rates, time, memory and disk of what is still to be done. Throws kOutOfMemory or kIo
// where memory or disk are clearly too small.
void plan_conversion(const ConvertOptions& options, Converter& converter,
                     const Calibration& calibration, const std::vector<PlannedRate>& rates);

}  // namespace bl
