#pragma once
#include <cuda_runtime_api.h>

namespace bl::cuda {

// Replaces runs of small copies between the card and page-locked memory in a captured graph by one
// kernel each. The copy engine takes microseconds for every copy, and the step waits meanwhile.
// Only a graph that is a chain of nodes, as capturing a single stream makes it, is changed.
void join_copies(cudaGraph_t step);

}  // namespace bl::cuda
