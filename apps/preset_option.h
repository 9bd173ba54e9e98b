#pragma once
#include <optional>
#include <string>

#include "sample/sampling_preset.h"

namespace bl {

// --preset, for every command whose answers are sampled.
struct PresetOption {
  const char* flag = "--preset";
  std::optional<std::string> source;

  template <class V>
  void visit(V&& v) {
    v(source, {flag, "NAME|FILE", help(), "none"});
  }

  // Names all presets that the program brings along.
  static const char* help();
  // UsageError for a name that there is not; what is wrong with a file is an Error.
  std::optional<SamplingPreset> load() const;
};

}  // namespace bl
