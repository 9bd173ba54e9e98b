#pragma once
#include <optional>
#include <string>

#include "sample/sampling_preset.h"

namespace bl {

// The option --preset, for every command that samples answers.
struct PresetOption {
  const char* flag = "--preset";
  std::optional<std::string> source;

  template <class V>
  void visit(V&& v) {
    v(source, {flag, "NAME|FILE", help(), "none"});
  }

  // The help text, which names all built-in presets.
  static const char* help();
  // Throws UsageError if there is no preset with that name, and Error if a file is wrong.
  std::optional<SamplingPreset> load() const;
};

}  // namespace bl
