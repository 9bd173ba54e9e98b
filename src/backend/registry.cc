#include "backend/registry.h"

#include <fmt/format.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"

namespace bl {

std::vector<std::string> backend_names() { return {"auto", "cpu", "ref"}; }

std::unique_ptr<Backend> open_backend(const std::string& name, const BackendOptions& options) {
  if (name == "auto" || name == "cpu") return std::make_unique<CpuBackend>(options.threads);
  if (name == "ref") return std::make_unique<RefBackend>(options.threads);
  if (name == "cuda" || name.rfind("cuda:", 0) == 0) {
    fail(ErrorCode::kUnsupported, "backend '{}': this build has no CUDA; use cpu", name);
  }
  fail(ErrorCode::kInvalidArgument, "unknown backend '{}'; known: {}", name,
       fmt::join(backend_names(), ", "));
}

}  // namespace bl
