// lora merge: writes a model with adapters folded into its weights.

#include <array>
#include <memory>

#include "backend/registry.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "base/pending_folder.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "command.h"
#include "companion_files.h"
#include "engine/open_model.h"
#include "lora_options.h"
#include "model/lora_merge.h"
#include "usage_error.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

struct MergeOptions {
  LoraOptions lora;
  std::string model;
  std::string folder;
  std::string archs;
  std::int64_t threads = 0;
  bool force = false;

  template <class V>
  void visit(V&& v) {
    v.group("Input and output");
    v(model, {"-m,--model", "DIR", "model folder or .gguf file"});
    lora.visit(v);
    v(folder, {"-o,--out", "OUT", "the folder to write: plain weights, fp16 if quantized"});
    v(force, {"--force", "", "replace the model that is already in the folder"});
    v(threads, {"--threads", "N", "CPU threads", "physical cores"});
    v(archs, {"--archs", "DIR", "folder of architecture files to use instead", "built in"});
  }
};

void merge(MergeOptions& options) {
  if (options.model.empty()) fail_usage("-m DIR is missing: the model folder or .gguf file");
  if (options.folder.empty()) fail_usage("-o OUT is missing: the folder to write");
  if (options.lora.adapters.empty()) fail_usage("--lora DIR is missing: the adapter to fold in");
  if (options.threads < 0 || options.threads > 1024) {
    fail_usage("--threads: {} is not in 1 … 1024 (0: physical cores)", options.threads);
  }
  const fs::path target = normalized_folder(options.folder);
  std::vector<fs::path> sources{options.model};
  std::vector<LoraMergeArgs::Adapter> adapters;
  for (const LoraArgument& one : options.lora.arguments()) {
    sources.emplace_back(one.folder);
    adapters.push_back({one.folder, one.weight});
  }
  check_new_folder(target, options.force, sources);
  const OpenedModel base = open_model(options.model, options.archs);
  if (!base.note.empty()) log_info("{}", base.note);
  const std::unique_ptr<Backend> backend =
      open_backend("cpu", {.threads = static_cast<int>(options.threads)});
  PendingFolder pending(target, options.force);
  std::unique_ptr<Progress> progress;
  const LoraMergeResult result = merge_lora(
      *backend, {.base = base.files,
                 .archs = options.archs,
                 .adapters = std::move(adapters),
                 .folder = pending.path(),
                 .progress = [&](std::int64_t done, std::int64_t total) {
                   check_interrupt();
                   if (!progress) {
                     progress = std::make_unique<Progress>("merge", total, Progress::Unit::kBytes);
                   }
                   progress->update(done);
                 }});
  progress.reset();
  write_companions(base, pending.path());
  pending.put_in_place();
  log_info("{}: {} tensors, {}, {} of them changed", target.string(), result.tensors,
           human_bytes(static_cast<double>(result.bytes)), result.changed);
}

}  // namespace

Command lora_merge_command() {
  return make_command<MergeOptions>({"lora merge",
                                     "-m DIR --lora DIR[:WEIGHT] -o OUT [--force]",
                                     "Fold LoRA adapters into plain weights",
                                     {{"Fold an adapter into the weights at 80 % of its strength",
                                       "bitloom lora merge -m DIR --lora ADAPTER:0.8 -o MERGED"}}},
                                    merge);
}

}  // namespace bl
