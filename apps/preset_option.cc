#include "preset_option.h"

#include "base/error.h"
#include "usage_error.h"

namespace bl {

const char* PresetOption::help() {
  static const std::string kHelp = [] {
    std::string text = "sampling parameters by name";
    const char* mark = " (";
    for (const std::string& name : SamplingPreset::names()) {
      text += mark + name;
      mark = ", ";
    }
    return text + ") or from a JSON file";
  }();
  return kHelp.c_str();
}

std::optional<SamplingPreset> PresetOption::load() const {
  if (!source) return std::nullopt;
  const bool is_name = source->find('/') == source->npos && !source->ends_with(".json");
  try {
    return SamplingPreset::load(*source);
  } catch (const Error& error) {
    if (is_name && error.code() == ErrorCode::kNotFound) {
      throw UsageError(std::string(flag) + ": " + error.what());
    }
    throw;
  }
}

}  // namespace bl
