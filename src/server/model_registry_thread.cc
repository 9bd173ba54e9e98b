// The registry's thread: loads models one after another, makes room for them, frees those that
// nobody has used for long.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/caught_error.h"
#include "server/model_registry.h"

namespace bl::server {
namespace {

constexpr std::chrono::milliseconds kProgressInterval{100};

// What a request for the model gets: the server is to blame, except for a shortage, which may pass.
// The message names the model as clients do, not by its place on the server.
std::shared_ptr<const Error> load_failure(const ModelEntry& entry, const Error& error) {
  std::string why = error.what();
  const std::string path = entry.path.string();
  for (std::size_t at = 0; !path.empty() && (at = why.find(path, at)) != std::string::npos;) {
    why.replace(at, path.size(), entry.name());
    at += entry.name().size();
  }
  const bool passes =
      error.code() == ErrorCode::kOutOfMemory || error.code() == ErrorCode::kCancelled;
  // Only the administrator says how a model is loaded.
  const bool is_askers = entry.explicitly && error.code() == ErrorCode::kInvalidArgument;
  const int status = passes ? 503 : is_askers ? 400 : 500;
  return std::make_shared<HttpError>(
      status, error.code() == ErrorCode::kOutOfMemory ? "out_of_memory" : "model_load_failed",
      fmt::format("the model '{}' could not be loaded: {}", entry.name(), why));
}

}  // namespace

void ModelRegistry::work() {
  Lock lock(shared_->mutex);
  while (!over_) {
    if (unload_one(lock) || advance(lock)) continue;
    const Clock::time_point next = next_look();
    if (next == Clock::time_point::max()) {
      shared_->changed.wait(lock);
    } else {
      shared_->changed.wait_until(lock, next);
    }
  }
}

// When an idle time or the patience of a load ends.
ModelRegistry::Clock::time_point ModelRegistry::next_look() const {
  Clock::time_point next = Clock::time_point::max();
  for (const auto& entry : queue_) next = std::min(next, entry->queued + options_.patience);
  for (const auto& entry : shared_->entries) {
    if (const auto deadline = deadline_of(*entry)) next = std::min(next, *deadline);
  }
  return next;
}

bool ModelRegistry::unload_one(Lock& lock) {
  for (const auto& entry : shared_->entries) {
    if (entry->model == nullptr || entry->in_use()) continue;
    const auto deadline = deadline_of(*entry);
    if (!entry->leaving() && (!deadline || Clock::now() < *deadline)) continue;
    free_model(*std::shared_ptr<Entry>(entry), lock);
    return true;
  }
  return false;
}

void ModelRegistry::free_model(Entry& entry, Lock& lock) {
  std::shared_ptr<ServedModel> model = std::exchange(entry.model, nullptr);
  const std::vector<std::function<void()>> unloaded = std::exchange(entry.on_unloaded, {});
  entry.memory = {};
  entry.makes_room = entry.unload = false;
  entry.idle_time.reset();
  lock.unlock();
  log_info("the model {} is unloaded", entry.name());
  model.reset();
  for (const auto& tell : unloaded) tell();
  lock.lock();
}

// Loads the first model of the queue, or does what comes before.
bool ModelRegistry::advance(Lock& lock) {
  for (const auto& entry : shared_->entries) entry->makes_room = false;
  // A model that is to be unloaded is loaded again once its requests are over; others go first.
  const auto next = std::find_if(queue_.begin(), queue_.end(), [](const auto& each) {
    return each->model == nullptr || !each->unload;
  });
  if (next == queue_.end()) return false;
  const std::shared_ptr<Entry> entry = *next;
  if (entry->model != nullptr) {
    queue_.erase(next);
    serve(entry, lock);
    return true;
  }
  if (!entry->planned) {
    plan(*entry, lock);
    return true;
  }
  if (!make_room(*entry, lock)) return false;
  const bool any_leaves = std::any_of(shared_->entries.begin(), shared_->entries.end(),
                                      [](const auto& each) { return each->makes_room; });
  if (any_leaves || !entry->planned) return true;
  drop_from_queue(*entry);
  load_now(entry, lock);
  return true;
}

// Finds out what a model will take.
void ModelRegistry::plan(Entry& entry, Lock& lock) {
  const LoadOrder order{.names = entry.names, .path = entry.path, .settings = entry.settings};
  ModelMemory needed;
  std::shared_ptr<const Error> failure;
  lock.unlock();
  try {
    if (options_.functions.plan) needed = options_.functions.plan(order);
  } catch (const std::exception&) {
    failure = load_failure(entry, caught_error());
  }
  lock.lock();
  if (failure == nullptr) {
    entry.planned = needed;
  } else {
    drop_from_queue(entry);
    entry.settings = {};
    fail_waiters(entry, failure, lock);
  }
}

// Plans what has to go and marks it; where that cannot be, the model is not loaded and `planned` is
// empty. Returns false where requests that run have to end first.
bool ModelRegistry::make_room(Entry& entry, Lock& lock) {
  std::vector<Resident> residents;
  std::vector<Entry*> whose;
  for (const auto& each : shared_->entries) {
    if (each->model == nullptr) continue;
    residents.push_back({.memory = each->memory,
                         .stays = each->pinned,
                         .in_use = each->in_use(),
                         .last_used = each->last_used});
    whose.push_back(each.get());
  }
  const RoomPlan plan = plan_room(residents, *entry.planned, options_.budget);
  const bool patient = Clock::now() < entry.queued + options_.patience;
  if (!plan.possible || (!plan.leaving.empty() && !patient)) {
    entry.planned.reset();
    drop_from_queue(entry);
    fail_waiters(entry,
                 std::make_shared<HttpError>(
                     503, "no_memory_for_model",
                     fmt::format("there is no memory for the model '{}': {}", entry.name(),
                                 plan.possible ? "requests to other models run; try again later"
                                               : "the models that stay leave too little")),
                 lock);
    return true;
  }
  bool idle = plan.leaving.empty();
  for (const std::size_t i : plan.leaving) {
    whose[i]->makes_room = true;
    idle |= !whose[i]->in_use();
  }
  return idle;
}

// Where the plan was wrong, or there is none: the least recently used idle model goes.
bool ModelRegistry::mark_one_idle(const Entry& loading) {
  Entry* oldest = nullptr;
  for (const auto& each : shared_->entries) {
    if (each->model == nullptr || each->pinned || each->in_use() || each.get() == &loading)
      continue;
    if (oldest == nullptr || each->last_used < oldest->last_used) oldest = each.get();
  }
  if (oldest != nullptr) oldest->unload = true;
  return oldest != nullptr;
}

// What the loaded models leave of the budget.
ModelMemory ModelRegistry::free_memory() const {
  ModelMemory left = options_.budget;
  for (const auto& each : shared_->entries) {
    left.device -= std::min(left.device, each->memory.device);
    left.host -= std::min(left.host, each->memory.host);
  }
  return left;
}

void ModelRegistry::load_now(const std::shared_ptr<Entry>& entry, Lock& lock) {
  entry->loading = true;
  entry->cancel = false;
  const ModelMemory needed = *std::exchange(entry->planned, std::nullopt);
  LoadOrder order{.names = entry->names,
                  .path = entry->path,
                  .settings = entry->settings,
                  .memory = free_memory()};
  order.on_progress = [&](std::int64_t done, std::int64_t total) {
    if (entry->cancel) fail(ErrorCode::kCancelled, "it was unloaded while it was loading");
    tell_progress(*entry, done, total);
  };
  lock.unlock();
  log_info("loading the model {}", entry->name());
  std::shared_ptr<ServedModel> model;
  std::optional<Error> failure;
  try {
    model = options_.functions.load(order);
  } catch (const std::exception&) {
    failure = caught_error();
    log_warning("the model {} could not be loaded: {}", entry->name(), failure->what());
  }
  lock.lock();
  entry->loading = false;
  if (model != nullptr) {
    entry->memory = options_.functions.plan ? needed : model->memory();
    return finish_load(entry, std::move(model), lock);
  }
  if (!failure) failure = Error(ErrorCode::kUnsupported, "there is no way to load it");
  if (failure->code() == ErrorCode::kOutOfMemory && !entry->waiters.empty() &&
      mark_one_idle(*entry)) {
    queue_.push_front(entry);
    return;
  }
  entry->settings = {};  // they may be what was wrong
  const std::vector<std::function<void()>> unloaded = std::exchange(entry->on_unloaded, {});
  fail_waiters(*entry, load_failure(*entry, *failure), lock);
  lock.unlock();
  for (const auto& tell : unloaded) tell();
  lock.lock();
}

void ModelRegistry::finish_load(const std::shared_ptr<Entry>& entry,
                                std::shared_ptr<ServedModel> model, Lock& lock) {
  entry->card = model->card();
  entry->loaded_at = model->created();
  entry->last_used = Clock::now();
  entry->explicitly = false;
  entry->unload = entry->cancel;  // the unload came too late to end the loading
  entry->lease.reset();
  entry->model = std::move(model);
  if (preset_) entry->model->set_preset(preset_);
  serve(entry, lock);
}

// Gives the loaded model to all who wait for it.
void ModelRegistry::serve(const std::shared_ptr<Entry>& entry, Lock& lock) {
  if (entry->model == nullptr) return;
  std::vector<LoadWaiter> waiters = std::exchange(entry->waiters, {});
  waiting_ -= waiters.size();
  entry->explicitly = false;
  Lease held = grant(entry);
  lock.unlock();
  for (LoadWaiter& waiter : waiters) waiter.done(held, nullptr);
  waiters.clear();
  held.reset();
  lock.lock();
}

void ModelRegistry::fail_waiters(Entry& entry, const std::shared_ptr<const Error>& error,
                                 Lock& lock) {
  std::vector<LoadWaiter> waiters = std::exchange(entry.waiters, {});
  waiting_ -= waiters.size();
  entry.explicitly = false;
  if (waiters.empty()) return;
  lock.unlock();
  for (LoadWaiter& waiter : waiters) waiter.done(nullptr, error);
  waiters.clear();
  lock.lock();
}

void ModelRegistry::tell_progress(Entry& entry, std::int64_t done, std::int64_t total) {
  std::vector<Progress> listeners;
  {
    const std::scoped_lock lock(shared_->mutex);
    const Clock::time_point now = Clock::now();
    if (now - entry.told < kProgressInterval && done < total) return;
    entry.told = now;
    for (const LoadWaiter& waiter : entry.waiters) {
      if (waiter.progress) listeners.push_back(waiter.progress);
    }
  }
  for (const Progress& listener : listeners) listener(done, total);
}

}  // namespace bl::server
