#include "engine/adapter_registry.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <new>
#include <utility>

namespace bl {
namespace {

constexpr double kMaxWeight = 1e4;
constexpr std::size_t kMostAdapters = 64;  // of a request
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
    if (!(std::fabs(choice.weight) <= kMaxWeight)) {
      fail(ErrorCode::kInvalidArgument, "the weight of adapter '{}' is {}, should be in ±{}",
           choice.name, choice.weight, kMaxWeight);
    }
    const auto found = std::find_if(loaded_.begin(), loaded_.end(), [&](const Loaded& one) {
      return !one.name.empty() && one.name == choice.name;
    });
    if (found == loaded_.end()) {
      std::string names;
      for (const Loaded& one : loaded_) {
        if (!one.name.empty()) names += (names.empty() ? "" : ", ") + one.name;
      }
      fail(ErrorCode::kNotFound, "no adapter '{}' is loaded; there is {}", choice.name,
           names.empty() ? "none" : names);
    }
    for (const Chosen& other : chosen) {
      if (other.from != &*found) continue;
      fail(ErrorCode::kInvalidArgument, "adapter '{}' is named twice", choice.name);
    }
    chosen.push_back({&*found, {found->adapter, static_cast<float>(choice.weight)}});
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

// Nobody can take hold of an adapter that has no name, so whoever holds the last one may drop it.
void AdapterRegistry::drop_unused() {
  std::erase_if(loaded_,
                [](const Loaded& one) { return one.name.empty() && one.adapter.use_count() == 1; });
}

void AdapterRegistry::finish(Order& order, std::optional<Error> error) {
  order.error = std::move(error);
  order.done = true;
  done_.notify_all();
}

void AdapterRegistry::work(StepModel& model) {
  std::unique_lock lock(mutex_);
  drop_unused();
  while (!orders_.empty()) {
    const std::shared_ptr<Order> order = orders_.front();
    orders_.erase(orders_.begin());
    std::size_t used = 0;
    for (const Loaded& one : loaded_) used += one.bytes;
    // Whoever submits need not wait for copies to the device.
    lock.unlock();
    Loaded fresh;
    std::optional<Error> error;
    try {
      fresh.adapter = model.pack_adapter(*order->adapter, used);
      fresh.bytes = model.adapter_bytes(*order->adapter);
      fresh.fingerprint = order->adapter->fingerprint();
    } catch (const Error& caught) {
      error = caught;
    } catch (const std::bad_alloc&) {
      error = Error(ErrorCode::kOutOfMemory, "out of memory while an adapter was being loaded");
    }
    order->adapter.reset();
    lock.lock();
    if (!error) {
      for (Loaded& one : loaded_) {
        if (one.name == order->name) one.name.clear();
      }
      fresh.name = order->name;
      loaded_.push_back(std::move(fresh));
    }
    finish(*order, std::move(error));
    drop_unused();
  }
}

void AdapterRegistry::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (const std::shared_ptr<Order>& order : orders_) {
    finish(*order, Error(ErrorCode::kCancelled, "the engine was shut down"));
  }
  orders_.clear();
  loaded_.clear();
}

}  // namespace bl
