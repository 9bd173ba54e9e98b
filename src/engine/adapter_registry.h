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
  std::size_t bytes = 0;  // of the model's memory
};

// The adapters of an engine, by name. Whoever asks reads and checks the files; the engine's thread
// takes and gives back memory, between steps. An adapter without a name lives on while a request
// uses it. Thread-safe.
class AdapterRegistry {
 public:
  // `waker` wakes the engine's thread.
  explicit AdapterRegistry(std::shared_ptr<Waker> waker) : waker_(std::move(waker)) {}

  // Waits until the engine's thread has loaded it, and throws what stopped it.
  void load(const std::string& name, std::unique_ptr<PreparedAdapter> adapter);
  void unload(const std::string& name);  // throws kNotFound
  std::vector<AdapterInfo> list() const;

  struct Resolved {
    AdapterMix mix;    // without those of weight 0; equal for equal choices in any order
    std::string salt;  // of cached pages: differs where what they hold may differ
  };
  // Throws kNotFound, kInvalidArgument.
  Resolved resolve(std::span<const AdapterChoice> choices) const;

  // Of the engine's thread: loads what waits, gives back what nobody uses.
  void work(StepModel& model) noexcept;
  // Nothing more is loaded; whoever waits is told.
  void stop();

 private:
  struct Loaded {
    std::string name;         // empty: unloaded
    std::string fingerprint;  // of its weights
    std::shared_ptr<const LoraAdapter> adapter;
    std::size_t bytes = 0;
  };
  struct Order {
    std::string name;
    std::unique_ptr<PreparedAdapter> adapter;
    bool done = false;
    std::optional<Error> error{};
  };
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
