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
#include "batch_line.h"

namespace bl {

// The id of the answer to request `number` of the file.
std::string answer_id(std::int64_t number);

// Reads the whole file before anything runs, and warns of wrong lines while it is still cheap to
// mend them. Returns the number of requests, wrong ones included.
std::int64_t check_batch_input(const std::filesystem::path& path);

// Reads requests one after another.
class BatchInput {
 public:
  explicit BatchInput(const std::filesystem::path& path);
  // Returns the next line that is not blank, and nothing at the end of the file. A line whose
  // custom_id has come before is wrong.
  std::optional<BatchLine> next();
  // The number of the line that next() returned last, from 1; blank lines do not count.
  std::int64_t number() const { return number_; }

 private:
  std::string name_;
  std::ifstream file_;
  std::int64_t number_ = 0;
  std::unordered_set<std::string> seen_;
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

  // Whether a request has an answer. Those without a custom_id (it is empty) go by their number.
  bool is_done(const std::string& custom_id, std::int64_t number) const;
  std::int64_t done() const { return static_cast<std::int64_t>(done_.size()); }
  // Writes one line and flushes it to the operating system. Throws kIo.
  void write(const Json& answer);

 private:
  void read_what_is_there();

  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
  bool made_ = false;  // this run has created the file and written nothing to it yet
  std::unordered_set<std::string> done_;  // key_of_answer() of each
};

}  // namespace bl
