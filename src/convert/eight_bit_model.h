#pragma once
#include <filesystem>

#include "model/model_files.h"
#include "ops/backend.h"

namespace bl {

// A copy of a plain model in memory whose linears are EXL2 with 8 bits, rounded to nearest. It says
// nearly what the model says, and a host multiplies by such matrices up to twice as fast as by
// plain ones. The copy reads everything else from the source of `files`, and takes half as much
// memory as the binary16 weights. `archs`: folder of further architectures; empty: none. Throws
// kUnsupported and kInvalidArgument for models that cannot be converted.
ModelFiles eight_bit_model(Backend& backend, const ModelFiles& files,
                           const std::filesystem::path& archs);

}  // namespace bl
