#pragma once
#include <span>

#include "base/embedded_document.h"

namespace bl {

// The files presets/*.json as they were when the program was built, with their names.
std::span<const EmbeddedDocument> embedded_presets();

}  // namespace bl
