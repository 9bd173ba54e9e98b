#pragma once
// The two files of an offline batch: requests and answers, a JSON object a line, as OpenAI's batch
// API has them.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/json_fwd.h"

namespace bl {

// Checks the whole file before anything runs: every line an object with a custom_id of its own, a
// known url and a body. Returns how many there are. Throws kInvalidFile naming the line.
std::int64_t check_batch_input(const std::filesystem::path& path);

// Reads the requests one after another.
class BatchInput {
 public:
  explicit BatchInput(const std::filesystem::path& path);
  // The next line that is not blank; nothing at the end.
  std::optional<std::string> next();

 private:
  std::ifstream file_;
};

// Appends answers. What an earlier run has written stays: whole lines count as done, and the piece
// of one that a kill has left is cut off.
class BatchOutput {
 public:
  // Throws kInvalidFile where the file holds something else than answers, kInvalidArgument where
  // another process writes to it.
  explicit BatchOutput(std::filesystem::path path);
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;
  ~BatchOutput();

  bool is_done(const std::string& custom_id) const { return done_.contains(custom_id); }
  std::int64_t done() const { return static_cast<std::int64_t>(done_.size()); }
  // One line, in the hands of the operating system when this returns. Throws kIo.
  void write(const std::string& custom_id, const Json& answer);

 private:
  void read_what_is_there();

  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
  bool made_ = false;  // by this run, and nothing is in it yet
  std::unordered_set<std::string> done_;
};

}  // namespace bl
