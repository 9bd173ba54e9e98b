#pragma once
#include <span>

#include "base/embedded_document.h"

namespace bl {

// The launch plans that are built into the program: the files gemm/plans/*.json, named by the
// compute capability that they were measured on, such as "cc90".
std::span<const EmbeddedDocument> embedded_launch_plans();

}  // namespace bl
