#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/logprobs.h"
#include "api/request_fields.h"
#include "engine/engine.h"

namespace bl::server {

// A loaded model and what requests to it leave open. Requests hold it while they run, so it
// outlives its place in the list of models.
class ServedModel {
 public:
  struct Args {
    std::unique_ptr<Engine> engine;  // made with a session that has text
    std::vector<std::string> names;  // the first is its name in answers; "*": any name is its
    openai::RequestDefaults otherwise{};
    SamplingParams sampling{};
  };
  explicit ServedModel(Args args);

  Engine& engine() { return *args_.engine; }
  const std::string& name() const { return args_.names.front(); }
  const std::vector<std::string>& names() const { return args_.names; }
  // Whether a request for `model` means this one: case and ":latest" do not count.
  bool answers_to(const std::string& model) const;
  std::int64_t created() const { return created_; }  // Unix seconds of loading
  const openai::RequestDefaults& otherwise() const { return args_.otherwise; }
  // What a request leaves open; with another seed at each call. Any thread.
  SamplingParams sampling() const;
  const openai::Logprobs& logprobs() const { return logprobs_; }

  // Calls use(text) while no other thread does: templates are parsed on first use.
  template <class Use>
  auto with_text(Use&& use) const {
    const std::scoped_lock lock(text_mutex_);
    return use(args_.engine->session().text());
  }

 private:
  Args args_;
  openai::Logprobs logprobs_;
  std::int64_t created_;
  mutable std::mutex text_mutex_;
};

}  // namespace bl::server
