#pragma once
#include <string>

#include "format/gptq_config.h"
#include "format/weight_matrix.h"

namespace bl {

// The GPTQ tensor set KEY.qweight, qzeros, scales and, where present, g_idx (spec §3), with every
// check of §13 but those that need the architecture. No bias. `config` may be null: then the
// tensors speak for themselves, with v1 zero points. Throws kInvalidFile naming the tensor, what
// was found and what would be right, kUnsupported for AWQ and planar layouts.
GptqMatrix load_gptq_matrix(const TensorSource& source, const std::string& key,
                            const GptqConfig* config);

}  // namespace bl
