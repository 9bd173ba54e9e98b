#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/event_stream.h"
#include "engine/request.h"
#include "engine/step_model.h"

namespace bl {

struct AdapterInfo {
  std::string name;
  std::size_t bytes = 0;  // that it takes in the model's memory
};

// The LoRA adapters of an engine, by name. The caller's thread reads and checks the files; the
// engine's thread allocates and frees device memory, between steps. An adapter that was unloaded or
// replaced has no name any more and lives on while a request uses it. Thread-safe.
class AdapterRegistry {
 public:
  // `waker` wakes the engine's thread.
  explicit AdapterRegistry(std::shared_ptr<Waker> waker) : waker_(std::move(waker)) {}

  // Waits until the engine's thread has loaded the adapter. Throws what kept it from that, and
  // kInvalidArgument for an empty or long name.
  void load(const std::string& name, std::unique_ptr<PreparedAdapter> adapter);
  void unload(const std::string& name);  // throws kNotFound
  std::vector<AdapterInfo> list() const;

  struct Resolved {
    AdapterMix mix;    // sorted by fingerprint, without adapters of weight 0
    std::string salt;  // for cached pages: equal exactly where their contents are
  };
  // Looks up the adapters of a request. Throws kNotFound, and kInvalidArgument for a weight that is
  // out of range, a name that is given twice, or too many adapters.
  Resolved resolve(std::span<const AdapterChoice> choices) const;

  // For the engine's thread: loads the adapters that wait and frees those that nobody uses.
  void work(StepModel& model) noexcept;
  // Loads nothing more; load() throws kCancelled from now on, also where it waits already.
  void stop();

 private:
  struct Loaded {
    std::string name;         // empty: unloaded or replaced
    std::string fingerprint;  // equal for equal weights
    std::shared_ptr<const LoraAdapter> adapter;
    std::size_t bytes = 0;
  };
  struct Order {
    std::string name;
    std::unique_ptr<PreparedAdapter> adapter;
    bool done = false;
    std::optional<Error> error{};
  };
  const Loaded& find(const AdapterChoice& choice) const;
  std::list<Loaded> take_unused() noexcept;
  static std::list<Loaded> pack(StepModel& model, const Order& order, std::size_t used);
  void finish(Order& order, std::optional<Error> error) noexcept;

  std::shared_ptr<Waker> waker_;
  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::vector<std::shared_ptr<Order>> orders_;
  std::list<Loaded> loaded_;
  bool stopped_ = false;
};

}  // namespace bl
