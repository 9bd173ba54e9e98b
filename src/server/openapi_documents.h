#pragma once
#include <span>

#include "base/embedded_document.h"

namespace bl {

// The files openapi/*.json as they were when the program was built.
std::span<const EmbeddedDocument> openapi_documents();

}  // namespace bl
