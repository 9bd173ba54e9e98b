#include "convert/fitting_kernels.h"
#include "convert/rounding_kernels.h"

namespace bl {

namespace portable {
extern const FittingKernels kFittingKernels;
extern const RoundingKernels kRoundingKernels;
}  // namespace portable

const FittingKernels& fitting_kernels() { return portable::kFittingKernels; }
const RoundingKernels& rounding_kernels() { return portable::kRoundingKernels; }

}  // namespace bl
