#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "engine/engine_stats.h"
#include "engine/request.h"

namespace bl::server {

// The counts of values up to each bound, in Prometheus' form.
class Histogram {
 public:
  // `bounds` rise, and outlive the histogram.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size()) {}
  void add(double value);
  // Appends the lines of NAME_bucket, NAME_sum and NAME_count. `labels`: such as `model="a"`.
  void write(const std::string& name, const std::string& labels, std::string& text) const;

 private:
  std::span<const double> bounds_;
  std::vector<std::int64_t> counts_;  // not cumulated
  std::int64_t count_ = 0;
  double sum_ = 0;
};

// How an answer ended, as metrics and the log say it: "stop", "length", "abort" or "error".
const char* ending_name(FinishReason reason);

// What the server has done since it started, for GET /metrics. Names are llama-server's with
// "bitloom:" in front, those of latencies vLLM's. Thread-safe.
class Metrics {
 public:
  struct Asked {
    std::string route;  // the pattern, or "none": names that clients choose would have no end
    std::string method;
    int status = 0;
    double seconds = 0;
  };
  void on_request(const Asked& asked);
  // `last`: the event of a choice that has `finish`.
  void on_answer(const std::string& model, const Event& last);
  // Texts with this many tokens were embedded in so many seconds.
  void on_embedding(const std::string& model, std::int64_t tokens, double seconds);

  // A model as it is now.
  struct ModelState {
    std::string name;
    EngineStats stats;
  };
  // The whole document, in Prometheus' text format 0.0.4.
  std::string text(std::span<const ModelState> models) const;

 private:
  struct OfModel {
    OfModel();
    std::int64_t answers = 0;
    std::int64_t prompt_tokens = 0;  // computed, without those that were cached
    std::int64_t cached_tokens = 0;
    std::int64_t generated_tokens = 0;
    std::int64_t longest = 0;  // tokens of a prompt with its answer
    double prompt_seconds = 0;
    double generated_seconds = 0;
    std::map<std::string, std::int64_t> endings{};
    std::vector<Histogram> histograms;
  };
  static void write_state(const ModelState& model, std::map<std::string, std::string>& families);

  mutable std::mutex mutex_;
  std::map<std::string, OfModel> models_;
  std::map<std::tuple<std::string, std::string, int>, std::int64_t> requests_;
  std::map<std::string, Histogram> seconds_;
};

}  // namespace bl::server
