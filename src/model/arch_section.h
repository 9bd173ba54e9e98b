#pragma once
#include <memory>
#include <set>
#include <string>

#include "model/arch_spec.h"

namespace bl {

// One object of an architecture file while it is read. Keys that a reader asks for count as known;
// done() refuses all others, so that a misspelt key never passes silently.
class ArchSection {
 public:
  ArchSection(const Json& json, std::string where);
  // The object under `key` of `parent`. It adds to the parent's config_keys().
  ArchSection(const Json& json, const ArchSection& parent, const std::string& key);

  // Returns nullptr if the key is absent or null.
  const Json* find(const char* key);
  std::string where(const char* key) const { return where_ + "." + key; }
  void read(const char* key, std::string& to);
  void read(const char* key, bool& to);
  void read(const char* key, std::optional<bool>& to);
  void read(const char* key, std::optional<std::string>& to);
  void read(const char* key, ArchValue& to);
  void read(const char* key, Condition& to);
  // Reads the name of a config key, or a list of such names.
  void read_key(const char* key, std::string& to);
  void read_key(const char* key, std::vector<std::string>& to);
  // Accepts a string or a list of strings.
  void read(const char* key, std::vector<std::string>& to);
  void done() const;
  // The keys of config.json that values and conditions name, here and in the sections below.
  const std::set<std::string>& config_keys() const { return *config_keys_; }

 private:
  const Json& json_;
  std::string where_;
  std::set<std::string> known_;
  std::shared_ptr<std::set<std::string>> config_keys_;
};

// Lays `patch` over `base`: objects are joined, anything else replaces. A null stays in the result:
// it removes what the base has.
Json join_arch(const Json& base, const Json& patch);

}  // namespace bl
