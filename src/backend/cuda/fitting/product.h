#pragma once
#include "backend/cuda/fitting/fitting_device.h"
#include "ops/fitting.h"

namespace bl::cuda {

// FittingOps::add_product by cuBLASLt, in F32. Statistics and Hessians need that accuracy: TF32
// keeps 10 bits of each factor, less than what GPTQ's feedback of errors tells apart, and three
// products of TF32 parts are faster than F32 on data-center cards alone.
void add_product(FittingDevice& device, const ProductArgs& args);

}  // namespace bl::cuda
