#pragma once
#include <set>
#include <string>

#include "model/arch_spec.h"

namespace bl {

// One object of an architecture file while it is read. Keys that a reader asks for count as known;
// done() refuses all others, so that a misspelt key never passes silently.
class ArchSection {
 public:
  ArchSection(const Json& json, std::string where);

  // Returns nullptr if the key is absent or null.
  const Json* find(const char* key);
  std::string where(const char* key) const { return where_ + "." + key; }
  void read(const char* key, std::string& to);
  void read(const char* key, bool& to);
  void read(const char* key, std::optional<bool>& to);
  void read(const char* key, std::optional<std::string>& to);
  void read(const char* key, ArchValue& to);
  void read(const char* key, Condition& to);
  // Accepts a string or a list of strings.
  void read(const char* key, std::vector<std::string>& to);
  void done() const;

 private:
  const Json& json_;
  std::string where_;
  std::set<std::string> known_;
};

// Lays `patch` over `base`: objects are joined, anything else replaces. A null stays in the result:
// it removes what the base has.
Json join_arch(const Json& base, const Json& patch);

}  // namespace bl
