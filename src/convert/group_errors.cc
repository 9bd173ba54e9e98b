#include "convert/group_errors.h"

#include "convert/rounding_kernels.h"
#include "format/bit_codec.h"

namespace bl {

void group_errors(const GroupPanel& panel, const ColumnGrids& grids, ColumnLanes& errors) {
  rounding_kernels().sum_errors({.weights = panel.weights,
                                 .stride = panel.stride,
                                 .importance = panel.importance.data(),
                                 .slots = std::ssize(panel.importance),
                                 .scale = grids.scale.data(),
                                 .zero = grids.zero.data(),
                                 .last = static_cast<float>(code_mask(panel.bits)),
                                 .columns = panel.columns,
                                 .errors = errors.data()});
}

}  // namespace bl
