#pragma once
#include <cstdint>
#include <filesystem>

namespace bl {

// Bytes of a model's weight files: of the .safetensors files in a folder, or of the file itself.
std::uint64_t weight_bytes(const std::filesystem::path& model);

}  // namespace bl
