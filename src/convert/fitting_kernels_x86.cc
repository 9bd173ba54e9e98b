#include "convert/fitting_kernels.h"

namespace bl {

namespace portable {
extern const FittingKernels kFittingKernels;
}
namespace avx2 {
extern const FittingKernels kFittingKernels;
}
namespace avx512 {
extern const FittingKernels kFittingKernels;
}

const FittingKernels& fitting_kernels() {
  static const FittingKernels& best = [&]() -> const FittingKernels& {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      return avx512::kFittingKernels;
    }
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return has_avx2 ? avx2::kFittingKernels : portable::kFittingKernels;
  }();
  return best;
}

}  // namespace bl
