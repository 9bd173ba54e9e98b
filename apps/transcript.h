#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace bl {

// A conversation: what the chat template sees, what /save writes.
class Transcript {
 public:
  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }

  void add_user(std::string text) { turns_.push_back({true, std::move(text)}); }
  void add_answer(std::string text) { turns_.push_back({false, std::move(text)}); }
  void clear() { turns_.clear(); }
  bool empty() const { return turns_.empty(); }
  // Takes the last question and its answer away; false where there is none.
  bool undo();
  // Takes the answer to the last question away, so that it can be given again; false without one.
  bool drop_answer();

  // [{"role", "content"}, …] for a template.
  OrderedJson messages() const;
  // A JSON document with the messages, complete or not at all.
  void save(const std::filesystem::path& path) const;
  // Replaces everything. Throws kInvalidFile with what is wrong; then nothing has changed.
  void load(const std::filesystem::path& path);

  struct Turn {
    bool is_user = true;
    std::string text;
  };
  const std::vector<Turn>& turns() const { return turns_; }

 private:
  std::string system_;
  std::vector<Turn> turns_;
};

}  // namespace bl
