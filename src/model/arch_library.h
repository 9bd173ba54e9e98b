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

// The documents of archs/, as built into the program, with those of a folder in front.
//
// Goals: an architecture is data; `extends` joins a document with one other, never with a chain.
class ArchLibrary {
 public:
  // `folder`: files there replace or join those built in (the command line's --archs); empty: none.
  explicit ArchLibrary(const std::filesystem::path& folder = {});

  // Throws kUnsupported, naming the nearest known ones, when no document matches. `file` is the
  // config that asks.
  ArchSpec find(const std::string& architecture, const std::string& file) const;
  // All architectures that match something, sorted.
  std::vector<std::string> architectures() const;
  // The document of that architecture with `extends` joined; nullptr when unknown.
  const Json* document_for(const std::string& architecture) const;
  // A document of archs/ by file name without .json; nullptr when there is none.
  const Json* document(const std::string& name) const;
  // Names of all documents, sorted.
  std::vector<std::string> names() const;

 private:
  void add(const std::string& name, Json document);
  void join_all();

  std::map<std::string, std::shared_ptr<const Json>> documents_;  // as written
  std::map<std::string, std::shared_ptr<const Json>> joined_;     // with `extends` joined
  std::map<std::string, std::string> by_match_;                   // architecture → document
};

}  // namespace bl
