#include "companion_files.h"

#include "base/file.h"
#include "base/json.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

// Whether a file belongs to a model beside its weights and config.json: tokenizer, templates,
// defaults.
bool is_companion(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::string extension = file.extension().string();
  for (const char* other : {"config.json", "quantize_config.json", "quant_config.json"}) {
    if (name == other) return false;
  }
  if (name.ends_with(".index.json")) return false;
  for (const char* known : {".json", ".txt", ".model", ".jinja", ".tiktoken"}) {
    if (extension == known) return true;
  }
  return false;
}

}  // namespace

void write_companions(const OpenedModel& base, const fs::path& folder) {
  if (base.tokenizer_json) {
    write_file_atomically(folder / "tokenizer.json", *base.tokenizer_json);
    write_file_atomically(folder / "tokenizer_config.json", base.tokenizer_config_json);
    write_file_atomically(folder / "generation_config.json", json_text(base.generation_config, 2));
    return;
  }
  for (const auto& entry : fs::directory_iterator(base.path)) {
    if (!entry.is_regular_file() || !is_companion(entry.path())) continue;
    write_file_atomically(folder / entry.path().filename(), read_file(entry.path()));
  }
}

}  // namespace bl
