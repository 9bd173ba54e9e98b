#pragma once
#include <chrono>
#include <filesystem>
#include <list>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/progress.h"
#include "batch_file.h"
#include "batch_request.h"
#include "engine/engine.h"
#include "logprobs_json.h"

namespace bl {

// The requests of a file on their way through an engine, and their answers into another file.
class BatchRun {
 public:
  struct Work {
    std::filesystem::path input;  // checked (check_batch_input)
    BatchOutput& output;          // new, or with answers of an earlier run
    std::int64_t total = 0;       // requests in the input
    std::int64_t open = 1;        // requests that the engine has at once
    BatchDefaults otherwise{};
  };
  // `session`: of the model that the engine runs; both must outlive it.
  BatchRun(Engine& engine, const ModelSession& session, Work work);

  // Writes an answer for every request that has none yet. What is wrong with a request is its
  // answer. Throws what is wrong with anything else (kIo, kDevice, kCancelled): requests without an
  // answer then stay so, and another run goes on with them.
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
  void finish(const OpenLine& line);
  void fail_line(const std::string& id, std::int64_t number, const Error& error);
  void write(const std::string& id, const Json& answer);

  Engine& engine_;
  const ModelSession& session_;
  Work work_;
  BatchInput input_;
  BatchOutput& output_;
  LogprobsJson logprobs_;
  Progress progress_;
  std::list<OpenLine> open_;
  std::int64_t number_ = 0;
  std::int64_t answered_ = 0;
  std::int64_t failed_ = 0;
};

}  // namespace bl
