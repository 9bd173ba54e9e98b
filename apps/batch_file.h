#pragma once
// The two files of an offline batch, requests and answers: one JSON object on each line, as in
// OpenAI's batch API.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/json_fwd.h"

namespace bl {

// Checks the whole file before anything runs: every line is an object with a custom_id of its own,
// a known url and a body. Returns the number of requests. Throws kInvalidFile naming the line.
std::int64_t check_batch_input(const std::filesystem::path& path);

// Reads requests one after another.
class BatchInput {
 public:
  explicit BatchInput(const std::filesystem::path& path);
  // Returns the next line that is not blank, and nothing at the end of the file.
  std::optional<std::string> next();

 private:
  std::ifstream file_;
};

// Appends answers to a file. Whole lines that an earlier run has written stay and count as done;
// the part of a line that a killed run has left behind is cut off.
class BatchOutput {
 public:
  // Throws kInvalidFile where the file holds anything but answers, and kInvalidArgument where
  // another process writes to it.
  explicit BatchOutput(std::filesystem::path path);
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;
  ~BatchOutput();

  bool is_done(const std::string& custom_id) const { return done_.contains(custom_id); }
  std::int64_t done() const { return static_cast<std::int64_t>(done_.size()); }
  // Writes one line and flushes it to the operating system. Throws kIo.
  void write(const std::string& custom_id, const Json& answer);

 private:
  void read_what_is_there();

  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
  bool made_ = false;  // this run has created the file and written nothing to it yet
  std::unordered_set<std::string> done_;
};

}  // namespace bl
