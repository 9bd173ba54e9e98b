#pragma once
#include <string>

#include "format/gptq_config.h"
#include "format/weight_matrix.h"

namespace bl {

// Loads the GPTQ tensors KEY.qweight, qzeros, scales and, if present, g_idx (docs/formats/gptq.md
// §3), and makes every check of §13 except those that need the architecture. Does not load a bias.
// If `config` is null, only the tensors decide, with v1 zero points. Throws kNotFound where a
// tensor is missing, kInvalidFile naming the tensor, what was found and what would be right, and
// kUnsupported for AWQ and planar layouts.
GptqMatrix load_gptq_matrix(const TensorSource& source, const std::string& key,
                            const GptqConfig* config);

}  // namespace bl
