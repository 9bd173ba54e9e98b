#pragma once
#include <chrono>
#include <filesystem>
#include <list>
#include <set>
#include <string>
#include <vector>

#include "api/logprobs.h"
#include "api/request_fields.h"
#include "base/json_fwd.h"
#include "base/progress.h"
#include "batch_file.h"
#include "batch_request.h"
#include "engine/engine.h"

namespace bl {

// Sends the requests of a file through an engine and writes the answers to another file.
class BatchRun {
 public:
  struct Work {
    std::filesystem::path input;
    BatchOutput& output;     // new, or with answers of an earlier run
    std::int64_t total = 0;  // requests in the input
    std::int64_t open = 1;   // lines that are answered at the same time
    openai::RequestDefaults otherwise{};
  };
  // `session` is the one that the engine runs. Both must outlive this object.
  BatchRun(Engine& engine, const ModelSession& session, Work work);

  // Writes an answer for every request that has none yet. A wrong request is answered with its
  // error. Throws other errors (kIo, kDevice, kCancelled); requests without an answer then stay
  // without one, and another run goes on with them.
  void run();

 private:
  // A line whose answer is being made.
  struct OpenLine {
    OpenLine(BatchRequest from, std::int64_t line_number)
        : request(std::move(from)), number(line_number) {}
    BatchRequest request;
    std::int64_t number;
    std::vector<RequestHandle> handles;
    std::vector<std::vector<Answer>> answers;
  };
  bool start_next();
  void collect();
  void submit(const BatchLine& line);
  void finish(const OpenLine& line);
  void fail_line(const std::string& id, std::int64_t number, const Error& error);
  void write(const Json& answer);
  void warn_of_unknown(const std::vector<std::string>& fields);

  Engine& engine_;
  const ModelSession& session_;
  Work work_;
  BatchInput input_;
  BatchOutput& output_;
  openai::Logprobs logprobs_;
  openai::AnswerFormats formats_;
  Progress progress_;
  std::list<OpenLine> open_;
  std::set<std::vector<std::string>> warned_;  // unknown fields that stderr has told of
  std::int64_t answered_ = 0;
  std::int64_t failed_ = 0;
};

}  // namespace bl
