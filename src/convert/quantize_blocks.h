#pragma once
#include <functional>
#include <vector>

#include "convert/job_folder.h"

namespace bl {

struct BlockLoop {
  ModelLoader& loader;
  Backend& backend;
  const LinearRounder& rounder;
  const RateFolder& folder;  // has the blocks that are finished, and receives the others
  const QuantizeOptions& options;
  // Called with the blocks that are done before each one; may throw to interrupt.
  std::function<void(std::size_t done)> progress = {};
};

// Quantizes the blocks that the folder lacks, in order, and moves both paths behind the last one.
// Returns the error of the residual stream behind each block (OutputQuality::block_errors).
std::vector<double> quantize_blocks(const BlockLoop& loop, TwoPaths& paths);

}  // namespace bl
