#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace bl {

struct BackendOptions {
  int threads = 0;  // 0: one per physical core
};

// Opens "auto", "cpu", "ref" or "cuda[:N]". Throws kInvalidArgument for other names, and
// kUnsupported or kNotFound, with what to do instead, if the device cannot be used.
std::unique_ptr<Backend> open_backend(const std::string& name, const BackendOptions& options);

// Throws kInvalidArgument, as open_backend() does, for a name that cannot be a backend's.
void check_backend_name(const std::string& name);

// Opens a backend for planning memory. If the name is "cuda[:N]" and there is no card, `is_plan` is
// true and the backend can only say how much memory a model would take.
struct Planner {
  std::unique_ptr<Backend> backend;
  bool is_plan = false;
};
Planner open_planner(const std::string& name, const BackendOptions& options);

// The names that open_backend() accepts in this build on this machine, for --help and errors.
std::vector<std::string> backend_names();

}  // namespace bl
