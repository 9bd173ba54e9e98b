#include "model/gguf_import.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "format/safetensors_writer.h"
#include "model/gguf_model.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

// A folder being filled beside its final place; it goes away unless it is put there.
class PendingFolder {
 public:
  explicit PendingFolder(const fs::path& target) : target_(target) {
    const std::string name = target.filename().string();
    path_ = target.parent_path() / fmt::format(".{}.tmp-{}", name, getpid());
    old_ = target.parent_path() / fmt::format(".{}.old-{}", name, getpid());
    std::error_code error;
    fs::create_directories(target.parent_path(), error);
    fs::remove_all(path_, error);
    if (!fs::create_directory(path_, error)) {
      fail(ErrorCode::kIo, "cannot make the folder {}: {}", path_.string(), error.message());
    }
  }
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;
  ~PendingFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }

  void put_in_place() {
    std::error_code error;
    const bool replaces = fs::exists(target_);
    if (replaces) rename(target_, old_);
    fs::rename(path_, target_, error);
    if (error) {
      std::error_code ignored;
      if (replaces) fs::rename(old_, target_, ignored);
      fail(ErrorCode::kIo, "cannot rename {} to {}: {}", path_.string(), target_.string(),
           error.message());
    }
    if (replaces) fs::remove_all(old_, error);
  }

 private:
  static void rename(const fs::path& from, const fs::path& to) {
    std::error_code error;
    fs::rename(from, to, error);
    if (error) {
      fail(ErrorCode::kIo, "cannot rename {} to {}: {}", from.string(), to.string(),
           error.message());
    }
  }
  fs::path target_;
  fs::path path_;
  fs::path old_;
};

// Absolute, without a trailing slash, so that siblings and names are well defined.
fs::path normalized(const fs::path& folder) {
  fs::path path = fs::absolute(folder).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path;
}

void check_target(const fs::path& target, const GgufImportArgs& args) {
  if (!fs::exists(target)) return;
  if (!fs::is_directory(target)) {
    fail(ErrorCode::kInvalidArgument, "{} exists and is no folder", target.string());
  }
  if (fs::is_empty(target)) return;
  if (!args.force) {
    fail(ErrorCode::kInvalidArgument,
         "the folder {} is not empty; give another one, or --force to replace it", target.string());
  }
  // --force replaces the whole folder: never one that holds more than a model.
  for (const auto& entry : fs::directory_iterator(target)) {
    std::error_code error;
    if (!entry.is_regular_file() || fs::equivalent(entry.path(), args.file, error)) {
      fail(ErrorCode::kInvalidArgument,
           "{} holds {}, which an import did not write; --force replaces folders of models only",
           target.string(), entry.path().filename().string());
    }
  }
}

void check_space(const fs::path& folder, std::uint64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= bytes) return;
  fail(ErrorCode::kIo, "{}: {} bytes are needed, {} are free", folder.string(), bytes,
       space.available);
}

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
  const fs::path target = normalized(args.folder);
  check_target(target, args);
  const GgufModel model = open_gguf(args.file, archs);
  GgufImportResult result;
  PendingFolder pending(target);
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
