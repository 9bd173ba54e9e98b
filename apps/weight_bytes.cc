#include "weight_bytes.h"

namespace bl {

namespace fs = std::filesystem;

std::uint64_t weight_bytes(const fs::path& model) {
  if (fs::is_regular_file(model)) return fs::file_size(model);
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(model)) {
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size();
  }
  return bytes;
}

}  // namespace bl
