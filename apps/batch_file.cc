#include "batch_file.h"

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"

namespace bl {
namespace {

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r") == line.npos; }

// Names the request that an answer belongs to: its custom_id, or where it has none its number,
// which is in the answer's own id. Empty: this is no answer.
std::string key_of_answer(const Json& answer) {
  if (!answer.is_object() || !answer.contains("response")) return {};
  for (const auto& [member, prefix] : {std::pair("custom_id", "custom_id "), std::pair("id", "")}) {
    const auto id = answer.find(member);
    if (id != answer.end() && id->is_string()) return prefix + id->get<std::string>();
  }
  return {};
}

// Returns the key of an answer that an earlier run has written.
std::string key_of_line(const std::string& line, const std::string& what) {
  std::string key = key_of_answer(parse_json(line, what));
  if (key.empty()) {
    fail(ErrorCode::kInvalidFile,
         "{}: has no \"custom_id\" or no \"response\", so this is not a file of answers; -o should "
         "name a new file, or one that `bitloom batch` has begun",
         what);
  }
  return key;
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

std::string answer_id(std::int64_t number) { return fmt::format("batch_req_{}", number); }

std::int64_t check_batch_input(const std::filesystem::path& path) {
  constexpr std::int64_t kMostShown = 5;
  BatchInput input(path);
  std::int64_t bad = 0;
  while (const std::optional<BatchLine> line = input.next()) {
    check_interrupt();
    if (!line->error || ++bad > kMostShown) continue;
    log_warning("{}; its answer will be an error", line->error->what());
  }
  if (bad > kMostShown) log_warning("{} more requests are wrong", bad - kMostShown);
  return input.number();
}

BatchInput::BatchInput(const std::filesystem::path& path) : name_(path.string()) {
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

std::optional<BatchLine> BatchInput::next() {
  std::string text;
  while (std::getline(file_, text)) {
    if (is_blank(text)) continue;
    const std::string what = fmt::format("{}: request {}", name_, ++number_);
    BatchLine line = BatchLine::read(text, what);
    if (line.custom_id.empty() || seen_.insert(line.custom_id).second) return line;
    // Two answers with one custom_id would be taken for each other.
    const Error twice(ErrorCode::kInvalidFile,
                      fmt::format("{}: custom_id {} is used twice; only the first is answered",
                                  what, json_shown(Json(line.custom_id))));
    return BatchLine{.error = twice};
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
    if (!is_blank(line)) done_.insert(key_of_line(line, what));
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

bool BatchOutput::is_done(const std::string& custom_id, std::int64_t number) const {
  return done_.contains(custom_id.empty() ? answer_id(number) : "custom_id " + custom_id);
}

void BatchOutput::write(const Json& answer) {
  const std::string line = json_text(answer) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0) {
    fail(ErrorCode::kIo,
         "cannot write {}: {}; the answers so far are kept, and the same command continues behind "
         "them",
         path_.string(), std::strerror(errno));
  }
  made_ = false;
  done_.insert(key_of_answer(answer));
}

}  // namespace bl
