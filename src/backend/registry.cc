#include "backend/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_entry.h"
#include "backend/cuda/cuda_planner.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"

namespace bl {
namespace {

constexpr std::string_view kCuda = "cuda";

// Returns N of "cuda:N", 0 for "cuda", and nothing for other names.
std::optional<int> cuda_index(std::string_view name) {
  if (!name.starts_with(kCuda)) return std::nullopt;
  name.remove_prefix(kCuda.size());
  if (name.empty()) return 0;
  int index = 0;
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + 1, end, index);
  if (name[0] != ':' || error != std::errc{} || at != end || index < 0) return std::nullopt;
  return index;
}

// Opens the first card, or else the CPU. A build with CUDA logs why it takes the CPU.
std::unique_ptr<Backend> open_best(const BackendOptions& options) {
  if (built_with_cuda()) {
    try {
      return open_cuda(0);
    } catch (const Error& error) {
      if (cuda_device_count() > 0) {
        log_warning("{}; using the CPU instead", error.what());
      } else {
        log_info("{}; using the CPU instead", error.what());
      }
    }
  }
  return std::make_unique<CpuBackend>(options.threads);
}

std::unique_ptr<Backend> open_card(int device) {
  try {
    return open_cuda(device);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    fail(error.code(), "{}; choose cpu instead", error.what());
  }
}

}  // namespace

std::vector<std::string> backend_names() {
  std::vector<std::string> names{"auto", "cpu", "ref"};
  if (built_with_cuda()) {
    names.emplace_back("cuda");
    for (int i = 0; i < cuda_device_count(); ++i) names.push_back(fmt::format("cuda:{}", i));
  }
  return names;
}

void check_backend_name(const std::string& name) {
  const std::vector<std::string> known = backend_names();
  if (cuda_index(name) || std::find(known.begin(), known.end(), name) != known.end()) return;
  fail(ErrorCode::kInvalidArgument, "unknown backend '{}'{} (available are {})", name,
       did_you_mean(name, known), fmt::join(known, ", "));
}

std::unique_ptr<Backend> open_backend(const std::string& name, const BackendOptions& options) {
  check_backend_name(name);
  if (name == "cpu") return std::make_unique<CpuBackend>(options.threads);
  if (name == "ref") return std::make_unique<RefBackend>(options.threads);
  if (const std::optional<int> device = cuda_index(name)) return open_card(*device);
  return open_best(options);
}

Planner open_planner(const std::string& name, const BackendOptions& options) {
  if (cuda_index(name) && cuda_device_count() == 0) {
    return {std::make_unique<CudaPlanner>(), true};
  }
  return {open_backend(name, options), false};
}

}  // namespace bl
