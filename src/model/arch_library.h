#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "model/arch_spec.h"

namespace bl {

// The documents of archs/ that were built into the program, and those of a folder, which take
// precedence.
//
// Goals: an architecture is data; `extends` joins a document with one other, never with a chain.
class ArchLibrary {
 public:
  // `folder`: its files replace or join the built-in ones (--archs); empty: none.
  explicit ArchLibrary(const std::filesystem::path& folder = {});

  // Throws kUnsupported, naming the nearest known architectures, if no document matches. `file` is
  // the config that names the architecture.
  ArchSpec find(const std::string& architecture, const std::string& file) const;
  // All architectures that some document matches, sorted.
  std::vector<std::string> architectures() const;
  // The document of an architecture with `extends` joined; nullptr if it is unknown.
  const Json* document_for(const std::string& architecture) const;
  // A document of archs/ by its file name without .json; nullptr if there is none.
  const Json* document(const std::string& name) const;
  // Names of all documents, sorted.
  std::vector<std::string> names() const;

 private:
  void add(const std::string& name, Json document);
  void join_all();
  // Adds to a description what holds for all architectures, and transformers' config class.
  void add_common(ArchSpec& spec) const;
  void add_class(const std::string& architecture, ArchSpec& spec) const;

  std::map<std::string, std::shared_ptr<const Json>> documents_;  // as written
  std::map<std::string, std::shared_ptr<const Json>> joined_;     // with `extends` joined
  std::map<std::string, std::string> by_match_;                   // architecture → document
};

}  // namespace bl
