#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace bl {

// A model's config.json as an architecture reads it: keys are looked up in several scopes (a text
// model inside a multimodal one), then among the values that absent keys have.
//
// The config remembers every key that was asked for, so that those which nothing reads can be named
// afterwards (model/config_keys.h). Copies share that memory.
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

  // Says that the file was not written for transformers (a GGUF file's metadata): an absent key
  // does not mean what transformers' config class makes of it.
  void forget_class_options() { has_class_ = false; }
  bool has_class_options() const { return has_class_; }

  // Where keys are looked up, in order ("" is the top level), and the values of absent keys: an
  // object by key, in which a dotted key stands for a member of a nested object.
  void set_scopes(std::vector<std::string> scopes) { scopes_ = std::move(scopes); }
  void set_defaults(Json defaults) { defaults_ = std::move(defaults); }
  const std::vector<std::string>& scopes() const { return scopes_; }
  const Json& defaults() const { return defaults_; }
  // Other names of top-level keys. A value under another name takes precedence, as in transformers.
  void set_aliases(std::map<std::string, std::string> aliases) { aliases_ = std::move(aliases); }

  struct Found {
    const Json* value = nullptr;  // neither nullptr nor JSON null
    std::string path;             // for messages: "text_config.rope_theta"
  };
  struct LookUp {
    std::optional<Found> found;  // the value, if there is one
    bool given = false;          // the file has the key, perhaps as a null
    bool declared = false;  // the file lacks it, and what that means is known (perhaps: nothing)
  };
  // `path` is dotted. A leading "/" restricts the look-up to the top level, and a whole number
  // indexes an array. As in transformers, an explicit null is an absent value that no default
  // replaces.
  LookUp look_up(std::string_view path) const;
  std::optional<Found> find(std::string_view path) const;

  // What an absent key means.
  LookUp default_of(const std::string& path) const;

  // Whole numbers whose values were used: those that the file gives, and the defaults of absent
  // keys.
  struct Sizes {
    std::map<std::string, std::int64_t> given, absent;
  };
  const Sizes& sizes() const { return *sizes_; }
  // Notes that what look_up() returned is used.
  void note_used(const LookUp& look) const;

  // Full paths ("text_config.rope_theta") of all keys that were asked for, whether they exist or
  // not. Sorted, so that the keys below an object are neighbours.
  const std::set<std::string>& asked() const { return *asked_; }
  // Notes that a key below a value that find() returned was read.
  void note(const std::string& full_path) const { asked_->insert(full_path); }

 private:
  std::vector<std::string> names_of(std::string_view path) const;

  Json root_;
  std::string file_;
  std::vector<std::string> scopes_{""};
  Json defaults_ = Json::object();
  std::map<std::string, std::string> aliases_;  // other name → name
  bool has_class_ = true;
  std::shared_ptr<std::set<std::string>> asked_ = std::make_shared<std::set<std::string>>();
  std::shared_ptr<Sizes> sizes_ = std::make_shared<Sizes>();
};

}  // namespace bl
