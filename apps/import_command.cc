#include <memory>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "command.h"
#include "model/gguf_import.h"
#include "usage_error.h"

namespace bl {
namespace {

struct ImportOptions {
  std::string file;
  std::string folder;
  std::string archs;
  bool force = false;

  template <class V>
  void visit(V&& v) {
    v.group("Input and output");
    v(file, {"file", "FILE.gguf", "the model to import"});
    v(folder, {"-o,--out", "DIR", "the folder to write"});
    v(force, {"--force", "", "replace the model that is already in the folder"});
    v(archs, {"--archs", "DIR", "folder of architecture files to use instead", "built in"});
  }
};

void import_file(ImportOptions& options) {
  if (options.file.empty()) fail_usage("import: FILE.gguf is missing");
  if (options.folder.empty()) fail_usage("import: -o DIR is missing");
  std::unique_ptr<Progress> progress;
  GgufImportArgs args;
  args.file = options.file;
  args.folder = options.folder;
  args.force = options.force;
  args.progress = [&](std::int64_t done, std::int64_t total) {
    check_interrupt();
    if (!progress) progress = std::make_unique<Progress>("import", total, Progress::Unit::kBytes);
    progress->update(done);
  };
  const GgufImportResult result = import_gguf(args, ArchLibrary(options.archs));
  progress.reset();
  log_info("{}: {} tensors, {} as fp16{}", options.folder, result.tensors,
           human_bytes(static_cast<double>(result.bytes)),
           result.tokenizer ? "" : ", without a tokenizer");
}

}  // namespace

Command import_command() {
  return make_command<ImportOptions>(
      {"import",
       "FILE.gguf -o DIR [--force]",
       "Convert a GGUF file to a Hugging Face folder in fp16",
       {{"Unpack model.gguf to fp16, with its tokenizer and chat template",
         "bitloom import model.gguf -o DIR"}}},
      import_file);
}

}  // namespace bl
