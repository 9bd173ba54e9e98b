#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace bl {

// A model's config.json as an architecture reads it: keys are looked up in several scopes (a text
// model inside a multimodal one), then in the architecture's defaults.
//
// Every byte of it may be hostile: look-ups return whatever the file has, and the typed readers of
// arch_evaluator.h check kind and range and report which key of which file is wrong.
class HfConfig {
 public:
  // `file` names the document in messages. Throws kInvalidFile unless `root` is an object.
  HfConfig(Json root, std::string file);

  const Json& root() const { return root_; }
  const std::string& file() const { return file_; }
  // The model class, architectures[0]; empty if the config names none.
  std::string architecture() const;
  // model_type; empty if the config has none.
  std::string model_type() const;

  // Where keys are looked up, in order ("" is the top level), and the values of absent keys.
  void set_scopes(std::vector<std::string> scopes) { scopes_ = std::move(scopes); }
  void set_defaults(Json defaults) { defaults_ = std::move(defaults); }

  struct Found {
    const Json* value = nullptr;  // neither nullptr nor JSON null
    std::string path;             // for messages: "text_config.rope_theta"
  };
  // `path` is dotted. A leading "/" restricts the look-up to the top level, and a whole number
  // indexes an array. As in transformers, an explicit null is an absent value that no default
  // replaces.
  std::optional<Found> find(std::string_view path) const;

 private:
  Json root_;
  std::string file_;
  std::vector<std::string> scopes_{""};
  Json defaults_ = Json::object();
};

}  // namespace bl
