#include "engine/adapter_registry.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

#include "engine/caught_error.h"

namespace bl {
namespace {

constexpr double kMaxWeight = 1e4;
constexpr std::size_t kMostAdapters = 64;  // per request
constexpr std::size_t kLongestName = 256;

}  // namespace

void AdapterRegistry::load(const std::string& name, std::unique_ptr<PreparedAdapter> adapter) {
  if (name.empty() || name.size() > kLongestName) {
    fail(ErrorCode::kInvalidArgument, "the name of an adapter should have 1 … {} characters",
         kLongestName);
  }
  auto order = std::make_shared<Order>();
  order->name = name;
  order->adapter = std::move(adapter);
  std::unique_lock lock(mutex_);
  if (stopped_) fail(ErrorCode::kCancelled, "the engine was shut down");
  orders_.push_back(order);
  waker_->wake();
  done_.wait(lock, [&] { return order->done; });
  if (order->error) throw Error(*order->error);
}

void AdapterRegistry::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(loaded_.begin(), loaded_.end(),
                                  [&](const Loaded& one) { return one.name == name; });
  if (name.empty() || found == loaded_.end()) {
    fail(ErrorCode::kNotFound, "no adapter '{}' is loaded", name);
  }
  found->name.clear();
  waker_->wake();
}

std::vector<AdapterInfo> AdapterRegistry::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<AdapterInfo> list;
  for (const Loaded& one : loaded_) {
    if (!one.name.empty()) list.push_back({one.name, one.bytes});
  }
  return list;
}

// Call with mutex_.
const AdapterRegistry::Loaded& AdapterRegistry::find(const AdapterChoice& choice) const {
  if (!(std::fabs(choice.weight) <= kMaxWeight)) {
    fail(ErrorCode::kInvalidArgument, "the weight of adapter '{}' is {}, should be in ±{}",
         choice.name, choice.weight, kMaxWeight);
  }
  std::string names;
  for (const Loaded& one : loaded_) {
    if (one.name.empty()) continue;
    if (one.name == choice.name) return one;
    names += (names.empty() ? "" : ", ") + one.name;
  }
  fail(ErrorCode::kNotFound, "no adapter '{}' is loaded; there is {}", choice.name,
       names.empty() ? "none" : names);
}

AdapterRegistry::Resolved AdapterRegistry::resolve(std::span<const AdapterChoice> choices) const {
  Resolved resolved;
  if (choices.empty()) return resolved;
  if (choices.size() > kMostAdapters) {
    fail(ErrorCode::kInvalidArgument, "{} adapters are more than {}", choices.size(),
         kMostAdapters);
  }
  struct Chosen {
    const Loaded* from;
    WeightedAdapter adapter;
  };
  std::vector<Chosen> chosen;
  const std::lock_guard lock(mutex_);
  for (const AdapterChoice& choice : choices) {
    const Loaded& found = find(choice);
    for (const Chosen& other : chosen) {
      if (other.from != &found) continue;
      fail(ErrorCode::kInvalidArgument, "adapter '{}' is named twice", choice.name);
    }
    chosen.push_back({&found, {found.adapter, static_cast<float>(choice.weight)}});
  }
  std::sort(chosen.begin(), chosen.end(), [](const Chosen& a, const Chosen& b) {
    return a.from->fingerprint < b.from->fingerprint;
  });
  for (const Chosen& one : chosen) {
    if (one.adapter.weight == 0) continue;
    resolved.salt += fmt::format("{}*{:x} ", one.from->fingerprint,
                                 std::bit_cast<std::uint32_t>(one.adapter.weight));
    resolved.mix.push_back(one.adapter);
  }
  return resolved;
}

// Removes the adapters that nobody uses: one without a name that only this list refers to, since
// no request can find it any more. The caller destroys the returned list without holding the lock,
// since freeing device memory may take as long as a step and others submit meanwhile.
std::list<AdapterRegistry::Loaded> AdapterRegistry::take_unused() noexcept {
  std::list<Loaded> unused;
  for (auto at = loaded_.begin(); at != loaded_.end();) {
    const auto next = std::next(at);
    if (at->name.empty() && at->adapter.use_count() == 1) {
      unused.splice(unused.end(), loaded_, at);
    }
    at = next;
  }
  return unused;
}

void AdapterRegistry::finish(Order& order, std::optional<Error> error) noexcept {
  order.error = std::move(error);
  order.done = true;
  done_.notify_all();
}

std::list<AdapterRegistry::Loaded> AdapterRegistry::pack(StepModel& model, const Order& order,
                                                         std::size_t used) {
  std::list<Loaded> fresh(1);
  fresh.front().adapter = model.pack_adapter(*order.adapter, used);
  fresh.front().bytes = model.adapter_bytes(*order.adapter);
  fresh.front().fingerprint = order.adapter->fingerprint();
  return fresh;
}

void AdapterRegistry::work(StepModel& model) noexcept {
  std::unique_lock lock(mutex_);
  const auto drop_unused = [&] {
    std::list<Loaded> unused = take_unused();
    lock.unlock();
    unused.clear();
    lock.lock();
  };
  drop_unused();
  while (!orders_.empty()) {
    const std::shared_ptr<Order> order = orders_.front();
    orders_.erase(orders_.begin());
    std::size_t used = 0;
    for (const Loaded& one : loaded_) used += one.bytes;
    // Copies to the device must not hold up those who submit requests.
    lock.unlock();
    std::list<Loaded> fresh;
    std::optional<Error> error;
    try {
      fresh = pack(model, *order, used);
    } catch (const std::exception&) {
      error = caught_error();
    }
    order->adapter.reset();
    lock.lock();
    if (!error) {
      for (Loaded& one : loaded_) {
        if (one.name == order->name) one.name.clear();
      }
      fresh.front().name = std::move(order->name);
      loaded_.splice(loaded_.end(), fresh);
    }
    drop_unused();
    finish(*order, std::move(error));
  }
}

void AdapterRegistry::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (const std::shared_ptr<Order>& order : orders_) {
    finish(*order, Error(ErrorCode::kCancelled, "the engine was shut down"));
  }
  orders_.clear();
  loaded_.clear();  // under the lock: the engine is going away, so nobody waits for it
}

}  // namespace bl
