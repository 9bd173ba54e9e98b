#pragma once
// Named sets of sampling parameters in JSON files. For each parameter a preset gives a default, a
// forced value, or a list to put in front of the request's:
//
//   { "description": "even-tempered prose",
//     "temperature": 0.9,                                   default; a request may replace it
//     "min_p": { "override": 0.05, "force": true },         wins over the request's value
//     "stop": { "override": ["###"], "additive": true } }   is put before the request's list
//
// Parameters have the names that sampling_json.h describes.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "sample/sampling_params.h"

namespace bl {

class SamplingPreset {
 public:
  // `source` is a path (if it has a slash or ends in .json) or a name: of NAME.json in `folder`, if
  // that is given, or of a preset that is built in. Throws kNotFound, listing the presets there
  // are, and kInvalidArgument for wrong keys or values.
  static SamplingPreset load(std::string_view source, const std::filesystem::path& folder = {});
  // Reads a preset from a document; `what` names it in errors.
  static SamplingPreset parse(const Json& document, std::string_view name, std::string_view what);

  // Sorted names of the presets that load() would find.
  static std::vector<std::string> names(const std::filesystem::path& folder = {});

  const std::string& name() const { return name_; }
  const std::string& description() const { return description_; }

  // Returns the request's object with the preset merged in: absent (or null) keys are filled in,
  // forced ones replaced, additive lists joined. Other keys of the request stay.
  Json merged(const Json& request) const;

  // Sets all values of the preset, as if it had been merged into an empty request.
  void apply(SamplingParams& params) const;
  // Sets only the forced values.
  void apply_forced(SamplingParams& params) const;
  // Whether the preset has an additive list under this name.
  bool adds(std::string_view key) const;

 private:
  struct Rule {
    std::string key;
    Json value;
    bool force = false;
    bool additive = false;
  };
  std::string name_;
  std::string description_;
  std::vector<Rule> rules_;
};

}  // namespace bl
