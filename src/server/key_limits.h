#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "http/message.h"

namespace bl::server {

// What one key may use; 0: as much as it likes. Without keys, the limits hold for all clients
// together.
struct KeyLimitOptions {
  std::int64_t requests_per_minute = 0;
  std::int64_t tokens_per_minute = 0;  // of prompts and answers
  std::int64_t concurrent = 0;         // requests that are being answered
};

// Holds keys to their limits. Both rates are buckets that hold what a minute allows and fill up
// evenly. An answer's tokens are known when it ends, so a bucket of tokens may fall below zero; the
// key then waits until it is above. Thread-safe.
class KeyLimits {
 public:
  using Clock = std::chrono::steady_clock;
  explicit KeyLimits(KeyLimitOptions options) : options_(options) {}

  // A request that was admitted: counts as concurrent while it lives.
  class Place {
   public:
    Place(KeyLimits& limits, std::string key) : limits_(limits), key_(std::move(key)) {}
    ~Place() { limits_.leave(key_); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    KeyLimits& limits_;
    std::string key_;
  };
  struct Decision {
    std::unique_ptr<Place> place;       // null: refused
    std::string refusal{};              // why, and which limit
    std::vector<http::Field> fields{};  // x-ratelimit-…, and Retry-After with a refusal
  };
  Decision admit(const std::string& key, Clock::time_point now = Clock::now());
  void count_tokens(const std::string& key, std::int64_t tokens,
                    Clock::time_point now = Clock::now());

 private:
  struct Bucket {
    double left = 0;
    void fill(double seconds, std::int64_t per_minute);
    // Seconds until `wanted` are in it.
    double wait(double wanted, std::int64_t per_minute) const;
  };
  struct Account {
    Bucket requests;
    Bucket tokens;
    std::int64_t running = 0;
    Clock::time_point filled{};
  };
  Account& account(const std::string& key, Clock::time_point now);
  std::vector<http::Field> fields_of(const Account& account) const;
  void leave(const std::string& key);

  const KeyLimitOptions options_;
  std::mutex mutex_;
  std::map<std::string, Account> accounts_;  // as many as there are keys
};

}  // namespace bl::server
