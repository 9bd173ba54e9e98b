#include "backend/cpu/kernels.h"

#include "base/check.h"

namespace bl::cpu {

namespace portable {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avxvnni {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

const Kernels& kernels_for(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return portable::kKernels;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return avx2::kKernels;
    case Isa::kAvxVnni:
      return avxvnni::kKernels;
    case Isa::kAvx512:
      return avx512::kKernels;
#else
    default:
      break;
#endif
  }
  BL_CHECK(false);  // the instruction set belongs to another processor family
  return portable::kKernels;
}

}  // namespace bl::cpu
