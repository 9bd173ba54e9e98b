#pragma once
#include <random>

#include "convert/calibration.h"

namespace bl::test {

// Rows of random ids below `ids`, always the same, and two that are held out.
inline Calibration random_rows(std::int64_t rows, std::int64_t length, int ids) {
  std::mt19937 random(4);
  Calibration result;
  for (std::int64_t r = 0; r < rows + 2; ++r) {
    auto& row = (r < rows ? result.rows : result.held_out).emplace_back();
    for (std::int64_t i = 0; i < length; ++i) {
      row.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(ids)));
    }
  }
  return result;
}

}  // namespace bl::test
