#pragma once
#include <span>
#include <string_view>

namespace bl {

struct EmbeddedPreset {
  std::string_view name;  // file name without .json
  std::string_view text;
};

// The files presets/*.json as they were when the program was built, by name.
std::span<const EmbeddedPreset> embedded_presets();

}  // namespace bl
