#include "sample/row_kernels.h"

namespace bl {

namespace portable {
extern const RowKernels kRowKernels;
}
namespace avx2 {
extern const RowKernels kRowKernels;
}
namespace avx512 {
extern const RowKernels kRowKernels;
}

const RowKernels& row_kernels() {
  static const RowKernels& best = [&]() -> const RowKernels& {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      return avx512::kRowKernels;
    }
    return __builtin_cpu_supports("avx2") ? avx2::kRowKernels : portable::kRowKernels;
  }();
  return best;
}

}  // namespace bl
