#include "convert/fitting_kernels.h"

namespace bl {

namespace portable {
extern const FittingKernels kFittingKernels;
}

const FittingKernels& fitting_kernels() { return portable::kFittingKernels; }

}  // namespace bl
