#pragma once
#include <span>

#include "base/embedded_document.h"

namespace bl {

// The files product/launch_plans/*.json as they were when the program was built, by the compute
// capability that they were measured on: "cc90".
std::span<const EmbeddedDocument> embedded_launch_plans();

}  // namespace bl
