#include "convert/fitting_kernels.h"
#include "convert/rounding_kernels.h"

namespace bl {

namespace portable {
extern const FittingKernels kFittingKernels;
extern const RoundingKernels kRoundingKernels;
}  // namespace portable
namespace avx2 {
extern const FittingKernels kFittingKernels;
extern const RoundingKernels kRoundingKernels;
}  // namespace avx2
namespace avx512 {
extern const FittingKernels kFittingKernels;
extern const RoundingKernels kRoundingKernels;
}  // namespace avx512

namespace {

struct Kernels {
  const FittingKernels& fitting;
  const RoundingKernels& rounding;
};

const Kernels& widest_kernels() {
  static const Kernels kernels = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      return Kernels{avx512::kFittingKernels, avx512::kRoundingKernels};
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      return Kernels{avx2::kFittingKernels, avx2::kRoundingKernels};
    }
    return Kernels{portable::kFittingKernels, portable::kRoundingKernels};
  }();
  return kernels;
}

}  // namespace

const FittingKernels& fitting_kernels() { return widest_kernels().fitting; }
const RoundingKernels& rounding_kernels() { return widest_kernels().rounding; }

}  // namespace bl
