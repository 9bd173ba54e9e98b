#pragma once
// What the registry knows of one model. Only the registry's own files include this.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "server/model_loading.h"
#include "server/served_model.h"

namespace bl::server {

struct LoadWaiter {
  std::uint64_t ticket = 0;
  std::function<void(std::shared_ptr<ServedModel>, std::shared_ptr<const Error>)> done{};
  std::function<void(std::int64_t done, std::int64_t total)> progress{};
};

struct ModelEntry {
  std::vector<std::string> names;  // the first is its own
  std::filesystem::path path;      // empty: it cannot be loaded again
  bool pinned = false;             // never makes room for others
  bool on_demand = true;           // requests may load it

  std::shared_ptr<ServedModel> model{};     // null: not loaded
  std::weak_ptr<ServedModel> lease{};       // expired: no request uses the model
  std::shared_ptr<const ModelCard> card{};  // of the last time that it was loaded
  std::int64_t loaded_at = 0;               // Unix seconds of that
  ModelMemory memory{};                     // of the loaded model
  LoadSettings settings{};                  // that it is loaded with, or is to be
  bool serves_request = false;              // a request has the lease, not only who looks
  std::chrono::steady_clock::time_point last_used{};
  // In place of the registry's own; negative: it stays.
  std::optional<std::chrono::milliseconds> idle_time{};

  std::optional<ModelMemory> planned{};  // what the next load will take, while it is queued
  bool loading = false;
  bool explicitly = false;          // the administrator wants it loaded, whoever waits
  std::atomic<bool> cancel{false};  // ends the loading
  bool makes_room = false;          // goes once its requests are over, for another model
  bool unload = false;              // goes once its requests are over, as somebody has asked
  int granted = 0;                  // requests that waited and are about to ask again
  std::chrono::steady_clock::time_point queued{};
  std::chrono::steady_clock::time_point told{};  // when progress was last passed on
  std::vector<LoadWaiter> waiters{};
  std::vector<std::function<void()>> on_unloaded{};

  const std::string& name() const { return names.front(); }
  bool leaving() const { return makes_room || unload; }
  // Whether requests get it at once. Those that have waited do, though it is to make room: else two
  // models that take turns would never be used.
  bool open() const { return model != nullptr && !unload && (!makes_room || granted > 0); }
  bool in_use() const { return !lease.expired(); }
};

// The part of the registry that leases refer to, since they may outlive it.
struct RegistryShared {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<ModelEntry>> entries;  // never removed, in the order of first mention
};

}  // namespace bl::server
