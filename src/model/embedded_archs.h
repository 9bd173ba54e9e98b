#pragma once
#include <span>
#include <string_view>

namespace bl {

struct EmbeddedArch {
  std::string_view name;  // file name without .json
  std::string_view text;
};

// The files archs/*.json as they were when the program was built.
std::span<const EmbeddedArch> embedded_archs();

}  // namespace bl
