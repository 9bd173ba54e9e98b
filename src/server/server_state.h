#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/generation.h"
#include "server/served_model.h"
#include "server/work_queue.h"

namespace bl::server {

// What all routes share. Thread-safe.
class ServerState {
 public:
  ServerState();

  // Throws HttpError 404 (model_not_found) where no model answers to the name.
  std::shared_ptr<ServedModel> model(const std::string& name) const;
  std::vector<std::shared_ptr<ServedModel>> models() const;
  void set_model(std::shared_ptr<ServedModel> model);

  // A new id, such as "chatcmpl-…": hard to guess, so that clients cannot name each other's.
  static std::string new_id(std::string_view prefix);

  WorkQueue& requests() { return requests_; }
  WorkQueue& answers() { return answers_; }

  // Starts a generation and keeps it for tick() and cancel_all().
  void run(std::shared_ptr<Generation> generation);
  void tick();
  void cancel_all();
  std::size_t running() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<ServedModel>> models_;
  std::vector<std::weak_ptr<Generation>> generations_;
  // Both queues end before the models do. Reading requests may take long; answers must not wait
  // for them.
  WorkQueue requests_;
  WorkQueue answers_;
};

}  // namespace bl::server
