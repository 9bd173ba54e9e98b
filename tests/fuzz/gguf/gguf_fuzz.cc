// Any bytes as a GGUF file, and cut before a second "GGUF" as two shards of a split model: parsing,
// config, vocabulary and every tensor give an Error or a result that holds together.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

namespace {

void check_files(const bl::ArchLibrary& archs, const std::vector<bl::GgufFile::Bytes>& shards) {
  try {
    check_model(bl::describe_gguf(bl::GgufFile::parse(shards), archs));
  } catch (const bl::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bl::ArchLibrary archs;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  check_files(archs, {{bytes, "fuzz.gguf"}});
  constexpr std::string_view kMagic = "GGUF";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t second = text.find(kMagic, kMagic.size());
  if (second == std::string_view::npos) return 0;
  check_files(archs,
              {{bytes.first(second), "fuzz-1.gguf"}, {bytes.subspan(second), "fuzz-2.gguf"}});
  return 0;
}
