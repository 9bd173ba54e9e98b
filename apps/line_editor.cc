#include "line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <iostream>
#include <utility>

#include "base/interrupt.h"
#include "base/terminal.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

constexpr int kHistoryLines = 2000;
// Encloses parts of the prompt that take no room on the screen.
constexpr char kPromptEscape = '\1';
constexpr const char* kBlockMark = "\"\"\"";

bool ends_with_backslash(const std::string& line) { return !line.empty() && line.back() == '\\'; }

}  // namespace

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  fs::path history_file;
  std::vector<std::string> commands;
  bool colors = false;
  bool continued = false;
  std::string prompt_text;

  ~State() {
    if (editor != nullptr) el_end(editor);
    if (history != nullptr) history_end(history);
  }

  static char* prompt(EditLine* editor) {
    State* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    const char* text = state->continued ? "… " : "> ";
    state->prompt_text =
        state->colors ? std::string("\1\x1b[1;32m\1") + text + "\1\x1b[0m\1" : text;
    return state->prompt_text.data();
  }

  // Reads one character. libedit's own reader continues after a signal, so Ctrl-C would do nothing
  // until the next key.
  static int read_character(EditLine*, wchar_t* character) {
    std::array<char, 4> bytes{};
    std::size_t have = 0;
    std::size_t need = 1;
    while (have < need) {
      const ssize_t got = read(STDIN_FILENO, &bytes[have], 1);
      if (got == 0) return 0;
      if (got < 0 && errno == EINTR && !interrupted()) continue;
      if (got < 0) return -1;
      if (have++ == 0) {
        const auto first = static_cast<unsigned char>(bytes[0]);
        need = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
      }
    }
    std::mbstate_t state{};
    const std::size_t used = std::mbrtowc(character, bytes.data(), need, &state);
    if (used == 0 || used > need) *character = static_cast<unsigned char>(bytes[0]);
    return 1;
  }

  static unsigned char complete(EditLine* editor, int) {
    State* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    const LineInfo* info = el_line(editor);
    const std::string typed(info->buffer, info->cursor);
    if (!typed.starts_with('/')) return CC_ERROR;
    std::string found;
    for (const std::string& command : state->commands) {
      if (!command.starts_with(typed)) continue;
      if (!found.empty()) return CC_ERROR;
      found = command;
    }
    if (found.empty()) return CC_ERROR;
    el_insertstr(editor, (found.substr(typed.size()) + " ").c_str());
    return CC_REFRESH;
  }

  void open_history() {
    history = history_init();
    HistEvent event{};
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    if (history_file.empty()) return;
    std::error_code error;
    fs::create_directories(history_file.parent_path(), error);
    if (fs::exists(history_file, error)) {
      ::history(history, &event, H_LOAD, history_file.c_str());
    }
  }

  void open() {
    // Without a UTF-8 locale, libedit would count bytes as columns.
    if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) {
      std::setlocale(LC_CTYPE, "C.UTF-8");
    }
    colors = wants_color(Stream::kStdout);
    editor = el_init("bitloom", stdin, stdout, stderr);
    open_history();
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_PROMPT_ESC, &State::prompt, kPromptEscape);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_GETCFN, &State::read_character);
    el_set(editor, EL_HIST, ::history, history);
    el_set(editor, EL_ADDFN, "complete-command", "complete a command", &State::complete);
    el_set(editor, EL_BIND, "^I", "complete-command", nullptr);
    el_set(editor, EL_BIND, "\x1b[1;5C", "em-next-word", nullptr);
    el_set(editor, EL_BIND, "\x1b[1;5D", "ed-prev-word", nullptr);
    el_set(editor, EL_BIND, "\x1b[3~", "ed-delete-next-char", nullptr);
    el_set(editor, EL_BIND, "\x1b[H", "ed-move-to-beg", nullptr);
    el_set(editor, EL_BIND, "\x1b[F", "ed-move-to-end", nullptr);
    el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(editor, nullptr);
  }

  // One line without its newline, or nothing at the end of input or when interrupted.
  std::optional<std::string> read_line() {
    std::string line;
    if (editor == nullptr) {
      if (!std::getline(std::cin, line)) return std::nullopt;
      return line;
    }
    int count = 0;
    el_resize(editor);
    const char* text = el_gets(editor, &count);
    if (text == nullptr || count <= 0) return std::nullopt;
    line.assign(text, static_cast<std::size_t>(count));
    if (!line.empty() && line.back() == '\n') line.pop_back();
    return line;
  }

  void remember(const std::string& entry) {
    if (history == nullptr || entry.find_first_not_of(" \n") == entry.npos) return;
    HistEvent event{};
    ::history(history, &event, H_ENTER, entry.c_str());
    if (!history_file.empty()) ::history(history, &event, H_SAVE, history_file.c_str());
  }
};

LineEditor::LineEditor(fs::path history, std::vector<std::string> commands)
    : state_(std::make_unique<State>()) {
  state_->history_file = std::move(history);
  state_->commands = std::move(commands);
  if (is_terminal(Stream::kStdin) && is_terminal(Stream::kStdout)) state_->open();
}

LineEditor::~LineEditor() = default;

bool LineEditor::is_interactive() const { return state_->editor != nullptr; }

std::optional<std::string> LineEditor::read_entry() {
  std::string entry;
  bool in_block = false;
  state_->continued = false;
  while (true) {
    std::optional<std::string> line = state_->read_line();
    if (!line) {
      if (interrupted()) {
        clear_interrupt();
        std::cout << "\n" << std::flush;
        if (interrupted()) return std::nullopt;  // the signal asked to quit, not just to stop
        return std::string();
      }
      if (entry.empty()) return std::nullopt;
      break;
    }
    if (!in_block && !state_->continued && line->starts_with(kBlockMark)) {
      in_block = true;
      line->erase(0, 3);
    }
    if (in_block && line->ends_with(kBlockMark)) {
      entry += line->substr(0, line->size() - 3);
      break;
    }
    if (!in_block && !ends_with_backslash(*line)) {
      entry += *line;
      break;
    }
    if (!in_block) line->pop_back();
    entry += *line + "\n";
    state_->continued = true;
  }
  state_->remember(entry);
  return entry;
}

fs::path state_file(const char* name) {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return fs::path(state) / "bitloom" / name;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return fs::path(home) / ".local" / "state" / "bitloom" / name;
}

}  // namespace bl
