#pragma once
// Named sets of sampling parameters in JSON files.
//
//   { "description": "even-tempered prose",
//     "temperature": 0.9,                                     a value that a request may replace
//     "min_p": { "override": 0.05, "force": true },           … that wins over the request's
//     "stop": { "override": ["###"], "additive": true } }     … a list put before the request's
//
// Names of parameters are those of sampling_json.h.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "sample/sampling_params.h"

namespace bl {

class SamplingPreset {
 public:
  // `source`: a path (with a slash or ending in .json), else the name of NAME.json in `folder`,
  // where one is given, or of a preset that the program brings along. Throws kNotFound naming what
  // there is, kInvalidArgument for wrong keys and values.
  static SamplingPreset load(std::string_view source, const std::filesystem::path& folder = {});
  // From a document; `what` names it in errors.
  static SamplingPreset parse(const Json& document, std::string_view name, std::string_view what);

  // Names of the presets that load() would find, sorted.
  static std::vector<std::string> names(const std::filesystem::path& folder = {});

  const std::string& name() const { return name_; }
  const std::string& description() const { return description_; }

  // What a request's object becomes: absent (or null) keys are filled in, forced ones replaced,
  // lists of additive ones joined. Other keys of the request are left alone.
  Json merged(const Json& request) const;

  // Sets all of the preset's values, as if an empty request had been merged.
  void apply(SamplingParams& params) const;
  // … of those that win over what the user says.
  void apply_forced(SamplingParams& params) const;
  // Whether its list of this name goes before the user's.
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
