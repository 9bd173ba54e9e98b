#include "server/model_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace bl::server {
namespace {

using Clock = std::chrono::steady_clock;

std::shared_ptr<const Error> stopping() {
  return std::make_shared<HttpError>(503, "server_stopping", "the server is stopping");
}

[[noreturn]] void fail_unknown(const std::string& name) {
  throw HttpError(404, "model_not_found",
                  fmt::format("the model '{}' does not exist here; /v1/models lists those that do",
                              name.substr(0, 200)));
}

[[noreturn]] void fail_not_loaded(const std::string& name) {
  throw HttpError(503, "model_not_loaded",
                  name.empty() ? "no model is loaded; load one with POST /v1/model/load"
                               : fmt::format("the model '{}' is not loaded; load it with POST "
                                             "/v1/model/load",
                                             name));
}

bool is_one_of(const std::vector<std::string>& names, const std::string& name) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& each) { return same_model_name(each, name); });
}

bool same_settings(const LoadSettings& a, const LoadSettings& b) {
  const auto all = [](const LoadSettings& s) {
    return std::tie(s.context, s.sequences, s.cache, s.rope_scale, s.rope_alpha, s.draft,
                    s.chat_template);
  };
  return all(a) == all(b);
}

}  // namespace

std::string_view name_of(ModelState state) {
  switch (state) {
    case ModelState::kQueued:
      return "queued";
    case ModelState::kLoading:
      return "loading";
    case ModelState::kLoaded:
      return "loaded";
    case ModelState::kLeaving:
      return "unloading";
    case ModelState::kUnloaded:
      break;
  }
  return "unloaded";
}

ModelRegistry::ModelRegistry(ModelOptions options) : shared_(std::make_shared<RegistryShared>()) {
  configure(std::move(options));
  thread_ = std::thread([this] { work(); });
}

ModelRegistry::~ModelRegistry() { stop(); }

void ModelRegistry::configure(ModelOptions options) {
  const std::scoped_lock lock(shared_->mutex);
  options_ = std::move(options);
  folder_ = std::make_unique<NamedFolder>(options_.folder, FolderKind::kModels);
}

void ModelRegistry::add_pinned(std::shared_ptr<ServedModel> model, std::filesystem::path path) {
  std::shared_ptr<ServedModel> replaced;
  const std::scoped_lock lock(shared_->mutex);
  auto& all = shared_->entries;
  const auto same = std::find_if(all.begin(), all.end(),
                                 [&](const auto& each) { return each->name() == model->name(); });
  const std::shared_ptr<Entry> held = same == all.end() ? std::make_shared<Entry>() : *same;
  if (same == all.end()) all.push_back(held);
  Entry& entry = *held;
  replaced = std::exchange(entry.model, model);
  entry.lease.reset();
  entry.names = model->names();
  entry.path = std::move(path);
  entry.pinned = true;
  entry.on_demand = false;
  entry.card = model->card();
  entry.loaded_at = model->created();
  entry.memory = model->memory();
  entry.last_used = Clock::now();
  if (preset_) model->set_preset(preset_);
}

// A model's lease is one object, whose end tells the registry that no request uses the model.
ModelRegistry::Lease ModelRegistry::lease(const std::shared_ptr<Entry>& entry, Use use) const {
  if (use == Use::kRequest) {
    entry->last_used = Clock::now();
    entry->serves_request = true;
  }
  if (Lease held = entry->lease.lock()) return held;
  // The entry knows its lease, which keeps this function until the entry is gone: so it must let
  // go of the entry when it is called. (Captured without "entry =", it would be const and stay.)
  Lease made(entry->model.get(), [shared = shared_, entry = entry](ServedModel*) mutable {
    const std::shared_ptr<Entry> ended = std::move(entry);
    const std::shared_ptr<RegistryShared> all = std::move(shared);
    {
      const std::scoped_lock lock(all->mutex);
      if (std::exchange(ended->serves_request, false)) ended->last_used = Clock::now();
    }
    all->changed.notify_all();
  });
  entry->lease = made;
  return made;
}

// A lease for somebody who has waited and will ask again while holding it.
ModelRegistry::Lease ModelRegistry::grant(const std::shared_ptr<Entry>& entry) const {
  ++entry->granted;
  Lease held = lease(entry);
  ServedModel* const model = held.get();
  return {model, [shared = shared_, entry, held = std::move(held)](ServedModel*) mutable {
            {
              const std::scoped_lock lock(shared->mutex);
              --entry->granted;
            }
            held.reset();
          }};
}

std::shared_ptr<ModelEntry> ModelRegistry::default_entry() const {
  std::shared_ptr<Entry> best;
  for (const auto& entry : shared_->entries) {
    if (entry->model == nullptr) continue;
    const bool better = best == nullptr || (entry->pinned && !best->pinned) ||
                        (entry->pinned == best->pinned && entry->last_used > best->last_used);
    if (better) best = entry;
  }
  return best;
}

// The entry that a name means; null where there is none yet. The caller holds the mutex.
std::shared_ptr<ModelEntry> ModelRegistry::known(const std::string& name) const {
  const auto& all = shared_->entries;
  for (const auto& entry : all) {
    if (entry->name() == name) return entry;
  }
  for (const auto& entry : all) {
    if (is_one_of(entry->names, name)) return entry;
  }
  return nullptr;
}

// The entry that a request for `name` means. Lets go of the lock while the folder is read.
std::shared_ptr<ModelEntry> ModelRegistry::resolve(const std::string& name, Lock& lock) const {
  const auto& all = shared_->entries;
  if (auto entry = name.empty() ? default_entry() : known(name)) return entry;
  lock.unlock();
  const std::vector<NamedFolder::Item> items =
      folder_->given() ? folder_->list() : std::vector<NamedFolder::Item>();
  const auto item = name.empty() ? std::nullopt : folder_->find(name);
  lock.lock();
  if (item) return entry_of(*item);
  if (name.empty()) {
    if (items.size() == 1) return entry_of(items.front());
    if (all.size() == 1) return all.front();
    if (items.empty()) fail_not_loaded({});
    throw HttpError(400, "model_not_given",
                    "no model is loaded, and the request names none; /v1/models lists the names");
  }
  for (const auto& entry : all) {
    if (is_one_of(entry->names, "*")) return entry;
  }
  if (all.empty() && !folder_->given()) fail_not_loaded({});
  fail_unknown(name);
}

// The entry of an item of the folder, made where it is new. The caller holds the mutex.
std::shared_ptr<ModelEntry> ModelRegistry::entry_of(const NamedFolder::Item& item) const {
  if (auto entry = known(item.name)) return entry;
  auto& all = shared_->entries;
  all.push_back(std::make_shared<Entry>());
  all.back()->names = {item.name};
  all.back()->path = item.path;
  return all.back();
}

// The caller holds the mutex.
void ModelRegistry::check_room_to_wait(const Entry& entry) const {
  const bool will_be_loaded = entry.loading || entry.explicitly;
  const bool may = entry.on_demand && !entry.path.empty() && options_.functions.load != nullptr;
  if (over_ || (!may && !will_be_loaded)) fail_not_loaded(entry.name());
  if (waiting_ < options_.most_waiting) return;
  throw HttpError(
      503, "overloaded",
      fmt::format("{} requests wait for models to be loaded; try again later", waiting_));
}

ModelRegistry::Lease ModelRegistry::get(const std::string& name) {
  Lock lock(shared_->mutex);
  const std::shared_ptr<Entry> entry = resolve(name, lock);
  if (entry->open()) return lease(entry);
  check_room_to_wait(*entry);
  throw ModelPending(entry->name());
}

// Lets go of the lock.
ModelRegistry::Ticket ModelRegistry::wait_for(const std::shared_ptr<Entry>& entry,
                                              LoadWaiter waiter, Lock& lock) {
  waiter.ticket = ++last_ticket_;
  entry->waiters.push_back(std::move(waiter));
  ++waiting_;
  if (!entry->loading && std::find(queue_.begin(), queue_.end(), entry) == queue_.end()) {
    entry->queued = Clock::now();
    queue_.push_back(entry);
  }
  const Ticket ticket = last_ticket_;
  lock.unlock();
  shared_->changed.notify_all();
  return ticket;
}

ModelRegistry::Ticket ModelRegistry::when_loaded(const std::string& name, Done done) {
  Lock lock(shared_->mutex);
  const std::shared_ptr<Entry> entry = resolve(name, lock);
  if (!entry->open()) {
    check_room_to_wait(*entry);
    return wait_for(entry, {0, std::move(done), {}}, lock);
  }
  Lease held = grant(entry);
  lock.unlock();
  done(std::move(held), nullptr);
  return 0;
}

void ModelRegistry::stop_waiting(Ticket ticket) {
  LoadWaiter gone;  // is destroyed without the lock
  const std::scoped_lock lock(shared_->mutex);
  for (const auto& entry : shared_->entries) {
    const auto at = std::find_if(entry->waiters.begin(), entry->waiters.end(),
                                 [&](const LoadWaiter& each) { return each.ticket == ticket; });
    if (at == entry->waiters.end()) continue;
    gone = std::move(*at);
    entry->waiters.erase(at);
    --waiting_;
    if (entry->waiters.empty() && !entry->explicitly) drop_from_queue(*entry);
    shared_->changed.notify_all();
    return;
  }
}

void ModelRegistry::drop_from_queue(const Entry& entry) {
  std::erase_if(queue_, [&](const auto& each) { return each.get() == &entry; });
}

ModelRegistry::Ticket ModelRegistry::load(const std::string& name, const LoadSettings& settings,
                                          Done done, Progress progress) {
  Lock lock(shared_->mutex);
  const std::shared_ptr<Entry> entry = resolve(name, lock);
  if (entry->open() && same_settings(entry->settings, settings)) {
    Lease held = lease(entry);
    lock.unlock();
    done(std::move(held), nullptr);
    return 0;
  }
  if (over_ || entry->path.empty() || options_.functions.load == nullptr) {
    throw HttpError(
        503, "model_not_loadable",
        fmt::format("the model '{}' cannot be loaded again by this server", entry->name()));
  }
  if (entry->loading) {
    throw HttpError(503, "model_is_loading",
                    fmt::format("the model '{}' is being loaded already", entry->name()));
  }
  entry->settings = settings;
  entry->planned.reset();
  entry->explicitly = true;
  if (entry->model != nullptr) entry->unload = true;  // requests in flight end first
  return wait_for(entry, {0, std::move(done), std::move(progress)}, lock);
}

void ModelRegistry::unload(const std::string& name, bool cancel, std::function<void()> done) {
  Lock lock(shared_->mutex);
  const std::shared_ptr<Entry> entry = resolve(name, lock);
  const bool queued = std::find(queue_.begin(), queue_.end(), entry) != queue_.end();
  if (entry->model == nullptr && !entry->loading && !queued) {
    throw HttpError(400, "model_not_loaded",
                    fmt::format("the model '{}' is not loaded", entry->name()));
  }
  const std::shared_ptr<ServedModel> model = entry->model;
  entry->explicitly = false;
  entry->on_unloaded.push_back(std::move(done));
  entry->cancel = entry->loading;
  entry->unload = model != nullptr;
  drop_from_queue(*entry);
  if (!entry->loading) {
    fail_waiters(*entry,
                 std::make_shared<HttpError>(
                     503, "model_unloaded",
                     fmt::format("the model '{}' was unloaded meanwhile", entry->name())),
                 lock);
  }
  std::vector<std::function<void()>> unloaded;
  if (entry->model == nullptr && !entry->loading) unloaded = std::exchange(entry->on_unloaded, {});
  lock.unlock();
  shared_->changed.notify_all();
  if (cancel && model != nullptr) model->engine().cancel_all();
  for (const auto& tell : unloaded) tell();
}

void ModelRegistry::keep_alive(const ServedModel& model,
                               std::optional<std::chrono::milliseconds> idle_time) {
  {
    const std::scoped_lock lock(shared_->mutex);
    for (const auto& entry : shared_->entries) {
      if (entry->model.get() == &model && !entry->pinned) entry->idle_time = idle_time;
    }
  }
  shared_->changed.notify_all();
}

void ModelRegistry::set_preset(const std::optional<SamplingPreset>& preset) {
  const std::scoped_lock lock(shared_->mutex);
  preset_ = preset;
  for (const auto& entry : shared_->entries) {
    if (entry->model != nullptr) entry->model->set_preset(preset);
  }
}

std::optional<SamplingPreset> ModelRegistry::preset() const {
  const std::scoped_lock lock(shared_->mutex);
  return preset_;
}

std::optional<ModelRegistry::Clock::time_point> ModelRegistry::deadline_of(
    const Entry& entry) const {
  if (entry.pinned || entry.model == nullptr || entry.in_use()) return std::nullopt;
  if (!entry.idle_time && options_.idle_time.count() == 0) return std::nullopt;
  const std::chrono::milliseconds idle = entry.idle_time.value_or(options_.idle_time);
  if (idle.count() < 0) return std::nullopt;
  return entry.last_used + std::min<std::chrono::milliseconds>(idle, std::chrono::hours(24 * 3650));
}

ModelInfo ModelRegistry::info_of(const Entry& entry) const {
  ModelInfo info;
  info.names = entry.names;
  info.path = entry.path;
  info.pinned = entry.pinned;
  info.card = entry.card;
  info.loaded_at = entry.loaded_at;
  info.memory = entry.memory;
  const bool queued = std::any_of(queue_.begin(), queue_.end(),
                                  [&](const auto& each) { return each.get() == &entry; });
  if (entry.loading) {
    info.state = ModelState::kLoading;
  } else if (entry.model != nullptr) {
    info.state = entry.leaving() ? ModelState::kLeaving : ModelState::kLoaded;
  } else if (queued) {
    info.state = ModelState::kQueued;
  }
  if (const auto deadline = deadline_of(entry)) {
    info.expires =
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(*deadline - Clock::now());
  }
  return info;
}

std::vector<ModelInfo> ModelRegistry::list() const {
  const std::vector<NamedFolder::Item> items = folder_->list();
  const std::scoped_lock lock(shared_->mutex);
  std::vector<ModelInfo> all;
  for (const auto& entry : shared_->entries) all.push_back(info_of(*entry));
  for (const NamedFolder::Item& item : items) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const ModelInfo& info) {
      return info.names.front() == item.name;
    });
    if (!known) all.push_back({.names = {item.name}, .path = item.path});
  }
  std::stable_sort(all.begin(), all.end(), [](const ModelInfo& a, const ModelInfo& b) {
    if (a.pinned != b.pinned) return a.pinned;
    return !a.pinned && a.names.front() < b.names.front();
  });
  return all;
}

std::vector<ModelRegistry::Lease> ModelRegistry::loaded() const {
  std::vector<Lease> all;
  const std::scoped_lock lock(shared_->mutex);
  for (const auto& entry : shared_->entries) {
    if (!entry->open()) continue;
    all.push_back(lease(entry, Use::kLook));
  }
  return all;
}

bool ModelRegistry::ready() const {
  const std::scoped_lock lock(shared_->mutex);
  if (over_) return false;
  if (folder_->given() && options_.functions.load != nullptr) return true;
  return std::any_of(shared_->entries.begin(), shared_->entries.end(),
                     [](const auto& entry) { return entry->model != nullptr; });
}

std::size_t ModelRegistry::waiting() const {
  const std::scoped_lock lock(shared_->mutex);
  return waiting_;
}

void ModelRegistry::fail_waiting() {
  Lock lock(shared_->mutex);
  queue_.clear();
  const auto all = shared_->entries;
  for (const auto& entry : all) {
    entry->explicitly = false;
    fail_waiters(*entry, stopping(), lock);
  }
}

void ModelRegistry::stop() {
  {
    const std::scoped_lock lock(shared_->mutex);
    over_ = true;
    for (const auto& entry : shared_->entries) entry->cancel = entry->loading;
  }
  shared_->changed.notify_all();
  if (thread_.joinable()) thread_.join();
  fail_waiting();
}

}  // namespace bl::server
