#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/generation.h"
#include "server/model_registry.h"
#include "server/served_model.h"
#include "server/work_queue.h"

namespace bl::server {

// Where the administrator may load things from; an empty path: from nowhere.
struct FolderPaths {
  std::filesystem::path adapters{};
  std::filesystem::path templates{};
  std::filesystem::path presets{};
};

struct AdminFolders {
  explicit AdminFolders(const FolderPaths& paths);
  NamedFolder adapters;
  NamedFolder templates;
  std::filesystem::path presets;  // as SamplingPreset::load() takes it
};

// What all routes share. Thread-safe.
class ServerState {
 public:
  ServerState();
  ~ServerState();

  // To be called before any request.
  void configure(ModelOptions models, const FolderPaths& folders);

  ModelRegistry& registry() { return registry_; }
  const ModelRegistry& registry() const { return registry_; }
  // As ModelRegistry::get(): a route that gets ModelPending thrown from here lets it pass, and is
  // run again when the model is loaded. So it asks for its model before it changes anything.
  std::shared_ptr<ServedModel> model(const std::string& name) { return registry_.get(name); }
  std::vector<std::shared_ptr<ServedModel>> models() const { return registry_.loaded(); }
  // Adds a model that stays.
  void set_model(std::shared_ptr<ServedModel> model) { registry_.add_pinned(std::move(model)); }

  // A new id, such as "chatcmpl-…": hard to guess, so that clients cannot name each other's.
  static std::string new_id(std::string_view prefix);

  WorkQueue& requests() { return requests_; }
  WorkQueue& answers() { return answers_; }
  // For what takes long on the thread that does it: embeddings, loading of adapters.
  WorkQueue& slow() { return slow_; }
  const AdminFolders& folders() const { return *folders_; }
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }

  // Starts a generation and keeps it for tick() and cancel_all().
  void run(std::shared_ptr<Generation> generation);
  // The generation that runs under an id; null where there is none.
  std::shared_ptr<Generation> generation(const std::string& id) const;
  void tick();
  void cancel_all();
  std::size_t running() const;

 private:
  std::unique_ptr<AdminFolders> folders_;
  ModelRegistry registry_;  // its leases may outlive it
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Generation>> generations_;
  // The queues end before the models do. Reading requests may take long; answers must not wait for
  // them.
  WorkQueue requests_;
  WorkQueue answers_;
  WorkQueue slow_;
};

}  // namespace bl::server
