#pragma once
#include <memory>

#include "ops/backend.h"

namespace bl {

// The door to the CUDA room: in builds without it, another file stands in (no_cuda.cc).
bool built_with_cuda();

// Cards that the driver shows; 0 without a driver.
int cuda_device_count();

// Throws kUnsupported, in one line, where the card cannot be used.
std::unique_ptr<Backend> open_cuda(int device);

}  // namespace bl
