// Any bytes as a safetensors file: header, tensors, and every linear in it. The metadata entry
// "config" is read as the model's config.json.

#include <cstdint>
#include <cstring>
#include <span>

#include "base/json.h"
#include "check_matrices.h"
#include "format/safetensors_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bl;
  // A copy of its own size, so that a read beyond the end is seen.
  auto bytes = std::make_shared<const std::vector<std::byte>>(
      reinterpret_cast<const std::byte*>(data), reinterpret_cast<const std::byte*>(data) + size);
  try {
    const SafetensorsFile file(bytes, *bytes, "input");
    for (const std::string& name : file.names()) {
      const HostArray array = file.read(name);
      std::vector<std::byte> copy(static_cast<std::size_t>(array.view.shape.elements()) *
                                  size_of(array.view.dtype));
      if (!copy.empty()) std::memcpy(copy.data(), array.view.data, copy.size());
    }
    std::optional<GptqConfig> config;
    if (const auto found = file.metadata().find("config"); found != file.metadata().end()) {
      config = read_gptq_config({}, parse_json(found->second, "config"));
    }
    for (const std::string& key : fuzz::linears_of(file)) {
      fuzz::check_matrix(file, key, {.gptq = config ? &*config : nullptr});
    }
  } catch (const Error& e) {
    BL_CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
