#include "server/key_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace bl::server {
namespace {

constexpr double kMinute = 60;

std::string whole_seconds(double seconds) {
  return std::to_string(static_cast<std::int64_t>(std::ceil(std::max(seconds, 0.0))));
}

std::int64_t whole(double left) { return static_cast<std::int64_t>(std::max(left, 0.0)); }

}  // namespace

void KeyLimits::Bucket::fill(double seconds, std::int64_t per_minute) {
  const auto most = static_cast<double>(per_minute);
  left = std::min(most, left + seconds * most / kMinute);
}

double KeyLimits::Bucket::wait(double wanted, std::int64_t per_minute) const {
  if (per_minute == 0 || left >= wanted) return 0;
  return (wanted - left) * kMinute / static_cast<double>(per_minute);
}

KeyLimits::Account& KeyLimits::account(const std::string& key, Clock::time_point now) {
  const auto [found, is_new] = accounts_.try_emplace(key);
  Account& account = found->second;
  if (is_new) {
    account.requests.left = static_cast<double>(options_.requests_per_minute);
    account.tokens.left = static_cast<double>(options_.tokens_per_minute);
    account.filled = now;
  }
  const double seconds = std::chrono::duration<double>(now - account.filled).count();
  if (seconds > 0) {
    account.requests.fill(seconds, options_.requests_per_minute);
    account.tokens.fill(seconds, options_.tokens_per_minute);
    account.filled = now;
  }
  return account;
}

std::vector<http::Field> KeyLimits::fields_of(const Account& account) const {
  std::vector<http::Field> fields;
  const auto add = [&](const char* kind, std::int64_t limit, const Bucket& bucket) {
    if (limit == 0) return;
    const std::string name = std::string("x-ratelimit-");
    fields.push_back({name + "limit-" + kind, std::to_string(limit)});
    fields.push_back({name + "remaining-" + kind, std::to_string(whole(bucket.left))});
    fields.push_back({name + "reset-" + kind,
                      whole_seconds(bucket.wait(static_cast<double>(limit), limit)) + "s"});
  };
  add("requests", options_.requests_per_minute, account.requests);
  add("tokens", options_.tokens_per_minute, account.tokens);
  return fields;
}

KeyLimits::Decision KeyLimits::admit(const std::string& key, Clock::time_point now) {
  Decision decision;
  const std::scoped_lock lock(mutex_);
  Account& own = account(key, now);
  double wait = 0;
  const auto refuse = [&](double seconds, std::string why) {
    wait = std::max(seconds, 1.0);
    decision.refusal = std::move(why);
  };
  if (options_.concurrent > 0 && own.running >= options_.concurrent) {
    refuse(1, fmt::format("{} requests of this key are being answered, which is the most at once; "
                          "try again when one of them has ended",
                          own.running));
  } else if (const double least = own.requests.wait(1, options_.requests_per_minute); least > 0) {
    refuse(least, fmt::format("this key may send {} requests a minute; try again in {} seconds",
                              options_.requests_per_minute, whole_seconds(least)));
  } else if (const double rest = own.tokens.wait(1, options_.tokens_per_minute); rest > 0) {
    refuse(rest, fmt::format("this key may use {} tokens a minute; try again in {} seconds",
                             options_.tokens_per_minute, whole_seconds(rest)));
  }
  if (decision.refusal.empty()) {
    if (options_.requests_per_minute > 0) own.requests.left -= 1;
    ++own.running;
    decision.place = std::make_unique<Place>(*this, key);
  }
  decision.fields = fields_of(own);
  if (!decision.refusal.empty()) decision.fields.push_back({"Retry-After", whole_seconds(wait)});
  return decision;
}

void KeyLimits::count_tokens(const std::string& key, std::int64_t tokens, Clock::time_point now) {
  if (options_.tokens_per_minute == 0) return;
  const std::scoped_lock lock(mutex_);
  account(key, now).tokens.left -= static_cast<double>(tokens);
}

void KeyLimits::leave(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  --accounts_.at(key).running;
}

}  // namespace bl::server
