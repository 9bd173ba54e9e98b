#pragma once
// What conversions to all formats have in common before the first block.

#include "base/sip_hash.h"
#include "convert/calibration.h"
#include "convert/quantize_block.h"

namespace bl {

// How the source is loaded. `archs`: folder of further architectures; empty: none.
LoadOptions conversion_load_options(const std::filesystem::path& archs);

// Throws kInvalidArgument and kUnsupported where nothing can be converted.
void check_conversion_source(const ModelLoader& loader, const Calibration& calibration);

// Changes with every token and every end of a row.
Hash128 hash_of(const Calibration& calibration);

// Both paths of all rows at the entry of the first block; each row is a chunk.
TwoPaths start_paths(ModelPart& ends, const Calibration& calibration);

}  // namespace bl
