#include "sample/row_kernels.h"

namespace bl {

namespace portable {
extern const RowKernels kRowKernels;
}

const RowKernels& row_kernels() { return portable::kRowKernels; }

}  // namespace bl
