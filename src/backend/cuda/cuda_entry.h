#pragma once
#include <memory>

#include "ops/backend.h"

namespace bl {

// The entry points of this folder. In builds without BL_CUDA, no_cuda.cc implements them.
bool built_with_cuda();

// Returns the number of cards that the driver shows, or 0 without a driver.
int cuda_device_count();

// Throws kUnsupported, with a message of one line, where the card cannot be used.
std::unique_ptr<Backend> open_cuda(int device);

}  // namespace bl
