#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "model/arch_spec.h"
#include "model/hf_config.h"

namespace bl {

// The documents of archs/ that were built into the program, and those of a folder, which take
// precedence.
//
// Goals: an architecture is data; `extends` joins a document with one other, never with a chain.
class ArchLibrary {
 public:
  // `folder`: its files replace or join the built-in ones (--archs); empty: none.
  explicit ArchLibrary(const std::filesystem::path& folder = {});

  // The architecture that a config names.
  struct Choice {
    ArchSpec spec;
    std::string architecture;  // the model class
    bool by_type = false;      // the config's own class is unknown
  };
  // Finds it by the model class. If that is missing or unknown, model_type decides, as in
  // transformers' AutoModelForCausalLM, unless the class is one that comes with the checkpoint as
  // code (auto_map). Throws kInvalidFile if the config has neither, kUnsupported, naming known
  // architectures of the same family, if no document matches.
  Choice find(const HfConfig& config) const;
  // All architectures that some document matches, sorted.
  std::vector<std::string> architectures() const;
  // A document of archs/ by its file name without .json; nullptr if there is none.
  const Json* document(const std::string& name) const;
  // Names of all documents, sorted.
  std::vector<std::string> names() const;

 private:
  void add(const std::string& name, Json document);
  void join_all();
  void add_names(const std::string& name, const Json& document, const Json& joined);
  [[noreturn]] void fail_unknown(const HfConfig& config) const;
  // The description in document `name`, as a model class has it.
  ArchSpec described(const std::string& name, const std::string& architecture) const;
  // Adds to a description what holds for all architectures, and transformers' config class.
  void add_common(ArchSpec& spec) const;
  void add_class(const std::string& architecture, ArchSpec& spec) const;

  std::map<std::string, std::shared_ptr<const Json>> documents_;  // as written
  std::map<std::string, std::shared_ptr<const Json>> joined_;     // with `extends` joined
  std::map<std::string, std::string> by_match_;                   // architecture → document
  std::map<std::string, std::string> by_type_;                    // model_type → document
};

}  // namespace bl
