#include "model/gguf_import.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/pending_folder.h"
#include "format/safetensors_writer.h"
#include "model/gguf_model.h"
#include "model/model_path.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

void write_json(const fs::path& path, const Json& json) {
  write_file_atomically(path, json_text(json, 2) + "\n");
}

void write_weights(const fs::path& folder, const GgufSource& source, const GgufImportArgs& args,
                   GgufImportResult& result) {
  std::vector<TensorPlan> plans;
  for (const std::string& name : source.names()) {
    const TensorInfo& info = *source.find(name);
    plans.push_back(plan_tensor(name, info.dtype, info.shape));
    result.bytes += static_cast<std::int64_t>(plans.back().bytes());
  }
  result.tensors = static_cast<std::int64_t>(plans.size());
  check_space(folder, static_cast<std::uint64_t>(result.bytes));
  ShardOptions options;
  options.max_bytes = args.shard_bytes;
  options.metadata = {{"format", "pt"}};
  ShardWriter writer(folder, std::move(plans), options);
  std::int64_t done = 0;
  for (const TensorPlan& plan : writer.tensors()) {
    source.stream(plan.name, [&](std::span<const Half> piece) {
      writer.write(std::as_bytes(piece));
      done += static_cast<std::int64_t>(piece.size_bytes());
      if (args.progress) args.progress(done, result.bytes);
    });
    source.done_with(plan.name);
  }
  const std::vector<std::string> files = writer.file_names();
  result.shards = std::count_if(files.begin(), files.end(),
                                [](const auto& name) { return name.ends_with(".safetensors"); });
  writer.commit();
}

}  // namespace

GgufImportResult import_gguf(const GgufImportArgs& args, const ArchLibrary& archs) {
  const fs::path target = normalized_folder(args.folder);
  check_new_folder(target, args.force, {&args.file, 1});
  const ModelPath from = std::filesystem::is_directory(args.file) ? resolve_model_path(args.file)
                                                                  : ModelPath{.gguf = args.file};
  if (from.gguf.empty()) {
    fail(ErrorCode::kNotFound, "{}: the folder holds no .gguf file", args.file.string());
  }
  const GgufModel model = open_gguf(from.gguf, archs);
  GgufImportResult result;
  PendingFolder pending(target, args.force);
  write_weights(pending.path(), *model.tensors, args, result);
  write_json(pending.path() / "config.json", model.config);
  write_json(pending.path() / "generation_config.json", model.generation_config);
  result.tokenizer = !model.tokenizer_json.empty();
  if (result.tokenizer) {
    write_file_atomically(pending.path() / "tokenizer.json", model.tokenizer_json);
    write_json(pending.path() / "tokenizer_config.json", model.tokenizer_config);
  }
  pending.put_in_place();
  return result;
}

}  // namespace bl
