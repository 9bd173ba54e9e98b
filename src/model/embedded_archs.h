#pragma once
#include <span>

#include "base/embedded_document.h"

namespace bl {

// The files archs/*.json as they were when the program was built.
std::span<const EmbeddedDocument> embedded_archs();

}  // namespace bl
