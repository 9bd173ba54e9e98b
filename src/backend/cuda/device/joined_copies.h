#pragma once
#include <cuda_runtime_api.h>

namespace bl::cuda {

// Small copies between the card and page-locked memory that follow one another in a recorded step
// (a chain of nodes, as one stream leaves it) become one kernel: a copy engine takes microseconds
// for each, and the step stands still meanwhile.
void join_copies(cudaGraph_t step);

}  // namespace bl::cuda
