#include "batch_file.h"

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"

namespace bl {
namespace {

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r") == line.npos; }

std::string custom_id_of(const Json& line, const std::string& what) {
  const auto id = line.is_object() ? line.find("custom_id") : line.end();
  if (!line.is_object() || id == line.end() || !id->is_string() ||
      id->get_ref<const std::string&>().empty()) {
    fail(ErrorCode::kInvalidFile, "{}: should be an object with a text as \"custom_id\"", what);
  }
  return id->get<std::string>();
}

// Returns the custom_id of a line that an earlier run has written.
std::string id_of_answer(const std::string& line, const std::string& what) {
  const Json answer = parse_json(line, what);
  std::string id = custom_id_of(answer, what);
  if (!answer.contains("response")) {
    fail(ErrorCode::kInvalidFile,
         "{}: has no \"response\", so this is not a file of answers; -o should name a new file, or "
         "one that `bitloom batch` has begun",
         what);
  }
  return id;
}

// Tells whether a text is a whole JSON value that is not an answer.
bool is_something_else(const std::string& text, const std::string& what) {
  try {
    return !parse_json(text, what).contains("response");
  } catch (const Error&) {
    return false;
  }
}

// Checks a last line that does not end: it may be cut off if a killed run has left it of an answer,
// but not if somebody else has written it.
void check_piece(const std::string& piece, const std::string& what) {
  constexpr std::string_view kBegin = "{\"custom_id\":";
  const std::size_t known = std::min(piece.size(), kBegin.size());
  const bool begins_so = piece.compare(0, known, kBegin.substr(0, known)) == 0;
  if (begins_so && !is_something_else(piece, what)) return;
  fail(ErrorCode::kInvalidFile,
       "{}: is not the beginning of an answer; -o should name a new file, or one that `bitloom "
       "batch` has begun",
       what);
}

}  // namespace

std::int64_t check_batch_input(const std::filesystem::path& path) {
  BatchInput input(path);
  std::unordered_set<std::string> seen;
  std::int64_t number = 0;
  while (const std::optional<std::string> line = input.next()) {
    check_interrupt();
    const std::string what = fmt::format("{}: request {}", path.string(), ++number);
    const Json document = parse_json(*line, what);
    const std::string id = custom_id_of(document, what);
    if (!seen.insert(id).second) {
      fail(ErrorCode::kInvalidFile, "{}: custom_id '{}' is used twice", what, id);
    }
    const Json url = document.value("url", Json());
    if (url != "/v1/chat/completions" && url != "/v1/completions") {
      fail(ErrorCode::kInvalidFile,
           "{}: url is {}, should be /v1/chat/completions or /v1/completions", what,
           json_text(url));
    }
    if (document.value("method", Json("POST")) != "POST") {
      fail(ErrorCode::kInvalidFile, "{}: method should be POST", what);
    }
    const auto body = document.find("body");
    if (body == document.end() || !body->is_object()) {
      fail(ErrorCode::kInvalidFile, "{}: should have an object as \"body\"", what);
    }
  }
  return number;
}

BatchInput::BatchInput(const std::filesystem::path& path) {
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path)) {
    fail(ErrorCode::kInvalidArgument,
         "{} is a {}; requests are read twice, and again by a run that continues, so they need a "
         "file",
         path.string(), std::filesystem::is_directory(path) ? "folder" : "pipe or device");
  }
  file_.open(path, std::ios::binary);
  if (!file_) {
    fail(ErrorCode::kNotFound, "cannot read {}: {}", path.string(), std::strerror(errno));
  }
}

std::optional<std::string> BatchInput::next() {
  std::string line;
  while (std::getline(file_, line)) {
    if (!is_blank(line)) return line;
  }
  return std::nullopt;
}

BatchOutput::BatchOutput(std::filesystem::path path) : path_(std::move(path)) {
  namespace fs = std::filesystem;
  const bool is_there = fs::exists(path_);
  if (is_there && !fs::is_regular_file(path_)) {
    fail(ErrorCode::kInvalidArgument, "{} is not a file", path_.string());
  }
  file_ = std::fopen(path_.c_str(), "ab");
  if (file_ == nullptr) {
    fail(ErrorCode::kIo, "cannot write {}: {}", path_.string(), std::strerror(errno));
  }
  try {
    // Lock the file before it is read or cut: an incomplete line may be one that another process
    // is just writing.
    if (::flock(::fileno(file_), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      fail(ErrorCode::kInvalidArgument,
           "{}: another process writes answers to this file; each needs one of its own",
           path_.string());
    }
    made_ = !is_there;
    if (is_there) read_what_is_there();
  } catch (...) {
    std::fclose(file_);
    throw;
  }
}

void BatchOutput::read_what_is_there() {
  std::ifstream file(path_, std::ios::binary);
  std::string line;
  std::uintmax_t whole = 0;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    const std::string what = fmt::format("{}: line {}", path_.string(), number);
    if (file.eof()) {
      check_piece(line, what);
      break;
    }
    if (!is_blank(line)) done_.insert(id_of_answer(line, what));
    whole += line.size() + 1;
  }
  file.close();
  if (whole < std::filesystem::file_size(path_)) std::filesystem::resize_file(path_, whole);
}

BatchOutput::~BatchOutput() {
  std::fclose(file_);
  // A run that has written nothing leaves no file.
  if (made_) std::remove(path_.c_str());
}

void BatchOutput::write(const std::string& custom_id, const Json& answer) {
  const std::string line = json_text(answer) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0) {
    fail(ErrorCode::kIo,
         "cannot write {}: {}; the answers so far are kept, and the same command continues behind "
         "them",
         path_.string(), std::strerror(errno));
  }
  made_ = false;
  done_.insert(custom_id);
}

}  // namespace bl
