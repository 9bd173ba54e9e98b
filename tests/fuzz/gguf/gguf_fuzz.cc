// Any bytes as a GGUF file: parsing, config, vocabulary and every tensor give an Error or a result
// that holds together.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "model/gguf_model.h"

namespace {

constexpr std::int64_t kMaxElements = 1 << 16;

void check_model(const bl::GgufModel& model) {
  if (!model.tokenizer_json.empty()) {
    BL_CHECK(bl::Json::accept(model.tokenizer_json));
  }
  BL_CHECK(!model.config.dump().empty());
  BL_CHECK(!model.generation_config.dump().empty());
  BL_CHECK(!model.tokenizer_config.dump().empty());
  std::int64_t elements = 0;
  for (const std::string& name : model.tensors->names()) {
    const bl::TensorInfo* info = model.tensors->find(name);
    BL_CHECK(info != nullptr);
    elements += info->shape.elements();
    if (elements > kMaxElements) return;
    try {
      const bl::HostArray array = model.tensors->read(name);
      BL_CHECK(array.view.shape == info->shape);
    } catch (const bl::Error&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bl::ArchLibrary archs;
  try {
    check_model(bl::describe_gguf(
        bl::GgufFile::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf"), archs));
  } catch (const bl::Error&) {
  }
  return 0;
}
