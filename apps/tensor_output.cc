#include "tensor_output.h"

#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/terminal.h"
#include "format/safetensors_writer.h"
#include "results.h"
#include "usage_error.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

void write_file(const fs::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<TensorPlan> plans;
  for (const NamedTensor& tensor : tensors) {
    const TensorView& view = tensor.tensor.view();
    plans.push_back(plan_tensor(tensor.name, view.dtype, view.shape));
  }
  SafetensorsWriter writer(path, std::move(plans));
  for (const TensorPlan& plan : writer.tensors()) {
    for (const NamedTensor& tensor : tensors) {
      if (tensor.name != plan.name) continue;
      const TensorView& view = tensor.tensor.view();
      writer.write({view.as<const std::byte>(), static_cast<std::size_t>(plan.bytes())});
    }
  }
  writer.commit();
}

// A file that is removed at the end of the scope.
struct TemporaryFile {
  fs::path path = fs::temp_directory_path() / fmt::format("bitloom-{}.safetensors", ::getpid());
  TemporaryFile() = default;
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

}  // namespace

void check_output(const std::string& path) {
  if (path.empty() && is_terminal(Stream::kStdout)) {
    fail_usage("-o OUT.safetensors is missing: tensors are not written to a terminal");
  }
}

void write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  if (!path.empty()) {
    write_file(path, tensors);
    return;
  }
  const TemporaryFile temporary;
  write_file(temporary.path, tensors);
  write_result(read_file(temporary.path, UINT64_MAX));
}

}  // namespace bl
