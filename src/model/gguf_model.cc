#include "model/gguf_model.h"

#include <map>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "model/gguf_tokenizer.h"

namespace bl {
namespace {

std::string count_types(const GgufFile& file) {
  std::map<std::string_view, int> counts;
  for (const GgufTensor& tensor : file.tensors()) ++counts[info_of(tensor.type).name];
  std::string text;
  for (const auto& [name, count] : counts) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", name, count);
  }
  return text;
}

}  // namespace

GgufModel describe_gguf(std::shared_ptr<const GgufFile> file, const ArchLibrary& archs) {
  const auto architecture = file->text("general.architecture");
  if (!architecture) {
    fail(ErrorCode::kInvalidFile, "{}: metadata key general.architecture is missing", file->name());
  }
  if (file->tensors().empty()) {
    fail(ErrorCode::kInvalidFile, "{}: holds no tensors; a file with a model is expected",
         file->name());
  }
  const GgufArch arch = find_gguf_arch(archs, *architecture, file->name());
  const Json* tables = archs.document("gguf-tokenizers");
  const Json none = Json::object();
  const Json& known = tables == nullptr ? none : *tables;
  const GgufMetadata metadata(*file, arch);
  GgufModel model;
  model.config = gguf_config(metadata);
  const Json end_names = arch.tokenizer.is_object() && arch.tokenizer.contains("end_tokens")
                             ? arch.tokenizer["end_tokens"]
                             : known.value("end_tokens", Json::array());
  model.generation_config = gguf_generation_config(metadata, end_names);
  model.tokenizer_json = gguf_tokenizer_json(metadata, known);
  model.tokenizer_config = gguf_tokenizer_config(metadata, known);
  model.stored_types = count_types(*file);
  model.tensors = std::make_shared<GgufSource>(std::move(file), metadata);
  return model;
}

GgufModel open_gguf(const std::filesystem::path& path, const ArchLibrary& archs) {
  return describe_gguf(GgufFile::open(path), archs);
}

}  // namespace bl
