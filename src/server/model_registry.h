#pragma once
// The models of a server: which there are, which are loaded, and who waits for one.
//
// Goals: a request for a model that is not loaded waits while all others go on; models are loaded
// one after another, on a thread of their own; within a budget of memory, the least recently used
// models make room, but never pinned ones and never ones whose requests run; nothing that goes
// wrong with a model ends the server. Non-goals: what a model is and how it is loaded
// (model_loading.h).

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sample/sampling_preset.h"
#include "server/error_shape.h"
#include "server/model_entry.h"
#include "server/model_folder.h"
#include "server/model_loading.h"
#include "server/served_model.h"

namespace bl::server {

struct ModelOptions {
  std::filesystem::path folder{};  // of models that requests load by name; empty: none
  LoadFunctions functions{};
  ModelMemory budget{};                    // for all models together
  std::chrono::milliseconds idle_time{0};  // an unpinned model goes after this; 0: it stays
  std::size_t most_waiting = 256;          // requests that wait for models
  std::chrono::seconds patience{600};      // how long running requests may hold up a load
};

// Thrown by a route that needs a model which is not loaded. Whoever runs the route calls
// ModelRegistry::when_loaded() and runs it again.
class ModelPending : public std::exception {
 public:
  explicit ModelPending(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  const char* what() const noexcept override { return "the model is not loaded yet"; }

 private:
  std::string name_;
};

enum class ModelState { kUnloaded, kQueued, kLoading, kLoaded, kLeaving };
std::string_view name_of(ModelState state);  // "loaded"

struct ModelInfo {
  std::vector<std::string> names;
  std::filesystem::path path;  // may be empty
  ModelState state = ModelState::kUnloaded;
  bool pinned = false;
  ModelMemory memory{};                     // while it is loaded
  std::shared_ptr<const ModelCard> card{};  // of the last time that it was loaded; may be null
  std::int64_t loaded_at = 0;               // Unix seconds of that; 0: never
  // When it goes unless a request comes; nothing: it stays.
  std::optional<std::chrono::system_clock::time_point> expires{};
};

// Thread-safe.
class ModelRegistry {
 public:
  using Lease = std::shared_ptr<ServedModel>;  // keeps a model loaded
  // Called once, on any thread, without a lock: with a lease, or with why there is none.
  using Done = std::function<void(Lease model, std::shared_ptr<const Error> error)>;
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;
  using Ticket = std::uint64_t;

  explicit ModelRegistry(ModelOptions options = {});
  ~ModelRegistry();
  ModelRegistry(const ModelRegistry&) = delete;
  ModelRegistry& operator=(const ModelRegistry&) = delete;

  // Takes the place of the options that it was made with. To be called before any request.
  void configure(ModelOptions options);
  // Adds a loaded model that stays until it is unloaded explicitly. `path`: what to load it from
  // again, or empty. A model of the same name is replaced.
  void add_pinned(std::shared_ptr<ServedModel> model, std::filesystem::path path = {});

  // Returns the model that a request names; an empty name is the default one: a pinned model, else
  // the one used last. Throws HttpError 404 for a name that does not exist, HttpError 503 where the
  // model may not be loaded by requests or too many wait already, and ModelPending.
  Lease get(const std::string& name);
  // Waits for a model without blocking, and has it loaded. `progress` may be empty. Returns a
  // ticket for stop_waiting(); zero where `done` was called already. Throws as get().
  Ticket when_loaded(const std::string& name, Done done);
  // The waiter has gone: it is not called any more. A model that nobody waits for is not loaded,
  // unless loading has begun.
  void stop_waiting(Ticket ticket);

  // Has a model loaded for the administrator. A loaded one is loaded again where `settings` differ
  // from what it was loaded with. The load goes on where nobody waits. Throws HttpError 404, and
  // 503 where this server loads no models.
  Ticket load(const std::string& name, const LoadSettings& settings, Done done, Progress progress);
  // Frees a model once its requests are over, or ends its loading; then calls `done`. Requests that
  // wait for it get an error. `cancel`: its requests are cancelled. Throws HttpError 404, and 400
  // where it is neither loaded nor about to be.
  void unload(const std::string& name, bool cancel, std::function<void()> done);

  // The idle time of an unpinned model from now on; negative: it stays, nothing: the default.
  void keep_alive(const ServedModel& model, std::optional<std::chrono::milliseconds> idle_time);
  // The sampling preset of all models, also of those that are loaded later.
  void set_preset(const std::optional<SamplingPreset>& preset);
  std::optional<SamplingPreset> preset() const;

  // All models that requests may name, by name.
  std::vector<ModelInfo> list() const;
  // The loaded models. Holding one of these keeps it loaded, but is no use of it.
  std::vector<Lease> loaded() const;
  // Whether requests can be answered: a model is loaded, or can be on demand.
  bool ready() const;
  std::size_t waiting() const;

  // Every waiting request gets status 503.
  void fail_waiting();
  // Ends what is being loaded, fails whoever waits, and loads nothing more.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  using Entry = ModelEntry;
  using Lock = std::unique_lock<std::mutex>;

  std::shared_ptr<Entry> known(const std::string& name) const;
  std::shared_ptr<Entry> resolve(const std::string& name, Lock& lock) const;
  std::shared_ptr<Entry> entry_of(const NamedFolder::Item& item) const;
  std::shared_ptr<Entry> default_entry() const;
  // Looking at a model is no use of it, which would keep it from becoming idle.
  enum class Use { kRequest, kLook };
  Lease lease(const std::shared_ptr<Entry>& entry, Use use = Use::kRequest) const;
  Lease grant(const std::shared_ptr<Entry>& entry) const;
  void check_room_to_wait(const Entry& entry) const;
  Ticket wait_for(const std::shared_ptr<Entry>& entry, LoadWaiter waiter, Lock& lock);
  ModelInfo info_of(const Entry& entry) const;
  std::optional<Clock::time_point> deadline_of(const Entry& entry) const;

  // The registry's thread. Each of these returns whether it did something; they may let go of the
  // lock meanwhile.
  void work();
  bool unload_one(Lock& lock);
  bool advance(Lock& lock);
  void free_model(Entry& entry, Lock& lock);
  void plan(Entry& entry, Lock& lock);
  bool make_room(Entry& entry, Lock& lock);
  ModelMemory free_memory() const;
  bool mark_one_idle(const Entry& loading);
  void load_now(const std::shared_ptr<Entry>& entry, Lock& lock);
  void finish_load(const std::shared_ptr<Entry>& entry, std::shared_ptr<ServedModel> model,
                   Lock& lock);
  void serve(const std::shared_ptr<Entry>& entry, Lock& lock);
  void fail_waiters(Entry& entry, const std::shared_ptr<const Error>& error, Lock& lock);
  void tell_progress(Entry& entry, std::int64_t done, std::int64_t total);
  void drop_from_queue(const Entry& entry);
  Clock::time_point next_look() const;

  ModelOptions options_;
  std::unique_ptr<NamedFolder> folder_;
  std::shared_ptr<RegistryShared> shared_;
  std::deque<std::shared_ptr<Entry>> queue_;  // models to load, in order
  std::optional<SamplingPreset> preset_;
  std::size_t waiting_ = 0;
  Ticket last_ticket_ = 0;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace bl::server
