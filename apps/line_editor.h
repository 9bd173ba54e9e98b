#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace bl {

// Reads what a person types: lines with editing and history on a terminal, plain lines from a pipe.
// A line that ends in a backslash, or a text between two """, goes on over several lines.
class LineEditor {
 public:
  // `commands` complete on Tab at the start of a line. `history` is read now and written after each
  // entry; a folder that cannot be made costs the history, not the session.
  LineEditor(std::filesystem::path history, std::vector<std::string> commands);
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor();

  // The next entry; nothing at the end of input. An interrupted line gives an empty entry.
  std::optional<std::string> read_entry();
  bool is_interactive() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// $XDG_STATE_HOME/bitloom/NAME, or ~/.local/state/bitloom/NAME; empty without a home.
std::filesystem::path state_file(const char* name);

}  // namespace bl
