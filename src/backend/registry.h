#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace bl {

struct BackendOptions {
  int threads = 0;  // 0: one a physical core
};

// Opens "auto", "cpu", "ref" or "cuda[:N]". Throws kUnsupported / kNotFound with what would be
// right.
std::unique_ptr<Backend> open_backend(const std::string& name, const BackendOptions& options);

// The same for plans alone: where "cuda[:N]" is named and no card is here, a backend that says what
// a model would take and can do nothing else; `is_plan` tells.
struct Planner {
  std::unique_ptr<Backend> backend;
  bool is_plan = false;
};
Planner open_planner(const std::string& name, const BackendOptions& options);

// Names that this build knows, for --help and errors.
std::vector<std::string> backend_names();

}  // namespace bl
