#pragma once
#include <span>

#include "base/embedded_document.h"

namespace bl {

// The files toolcall/formats/*.json as they were when the program was built.
std::span<const EmbeddedDocument> embedded_answer_formats();

}  // namespace bl
