#pragma once
#include "backend/cuda/device/device_facts.h"

namespace bl::cuda {

// Makes the card current and reads its properties. Throws kUnsupported where there is no usable
// driver, no card or a card older than compute capability 7.5, and kInvalidArgument where `index`
// is out of range. The one place that reads BITLOOM_CUDA_CAPABILITY (stand_in.h).
DeviceFacts read_device_facts(int index);

}  // namespace bl::cuda
