#pragma once
#include "backend/cuda/fitting/fitting_device.h"
#include "backend/cuda/fitting/group_grids.h"

namespace bl::cuda {

// The weights of a group as GPTQ reaches it, and what an error of each slot costs.
struct GroupWeights {
  const float* weights = nullptr;     // [slots, out], contiguous
  const float* importance = nullptr;  // [slots]
  std::int64_t slots = 0;
  std::int64_t out = 0;  // a multiple of 32
};

// Scratch of searches, for matrices of so many columns.
class SearchScratch {
 public:
  SearchScratch(FittingDevice& device, std::int64_t out);

  std::shared_ptr<float> errors;          // [kCurvePoints, out]: of each column at each point
  std::shared_ptr<float> log_base;        // [out]: of the first scale of a column's ladder
  std::shared_ptr<float> preferred;       // [out]: the scale with the least error
  std::shared_ptr<double> of_maximum;     // [kMaximaTried]
  std::shared_ptr<std::uint16_t> maxima;  // [kMaximaTried]
};

// Chooses the scales of a group, as Exl2Grids and GptqGrids of convert/ do.
void search_grids(FittingDevice& device, const GroupWeights& group, const GroupGrids& grids,
                  const SearchScratch& scratch);

}  // namespace bl::cuda
