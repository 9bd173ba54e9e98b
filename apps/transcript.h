#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace bl {

// A conversation, as the chat template sees it and /save writes it.
class Transcript {
 public:
  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }

  void add_user(std::string text) { turns_.push_back({true, std::move(text)}); }
  void add_answer(std::string text) { turns_.push_back({false, std::move(text)}); }
  void clear() { turns_.clear(); }
  bool empty() const { return turns_.empty(); }
  // Removes the last question and its answer. Returns false if there is none.
  bool undo();
  // Removes the answer to the last question, so that it can be answered again. Returns false if
  // there is no question.
  bool drop_answer();

  // Returns [{"role", "content"}, …] for a template.
  OrderedJson messages() const;
  // Writes the messages as a JSON document, complete or not at all.
  void save(const std::filesystem::path& path) const;
  // Replaces the conversation. Throws kInvalidFile, and changes nothing, if the file is wrong.
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
