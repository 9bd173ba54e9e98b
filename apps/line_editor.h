#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace bl {

// Reads what a person types: lines with editing and history on a terminal, plain lines otherwise.
// An entry continues over several lines if a line ends in a backslash, or between two """.
class LineEditor {
 public:
  // Tab completes `commands` at the start of a line. `history` is read now and written after each
  // entry; if its folder cannot be created, there is just no history.
  LineEditor(std::filesystem::path history, std::vector<std::string> commands);
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor();

  // Returns the next entry, or nothing at the end of input. An interrupted line gives an empty
  // entry.
  std::optional<std::string> read_entry();
  bool is_interactive() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// $XDG_STATE_HOME/bitloom/NAME, or ~/.local/state/bitloom/NAME; empty if there is no home folder.
std::filesystem::path state_file(const char* name);

}  // namespace bl
