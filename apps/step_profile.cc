#include "step_profile.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "base/json.h"

namespace bl {

StepProfile profile_steps(ModelSession& session, const std::string& test,
                          const std::function<void()>& prepare, const std::function<void()>& run) {
  StepProfile profile;
  profile.test = test;
  prepare();
  session.backend().synchronize();
  const std::unique_ptr<OpTimer> timer = session.backend().op_timer(profile.ops);
  struct Observed {
    ModelSession& session;
    ~Observed() { session.observe_ops(nullptr); }
  } const observed{session};
  session.observe_ops(timer.get());
  const auto begin = std::chrono::steady_clock::now();
  run();
  session.backend().synchronize();
  profile.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  timer->collect();
  return profile;
}

std::string profile_tables(std::span<const StepProfile> profiles) {
  std::string text;
  for (const StepProfile& profile : profiles) {
    text += fmt::format("\n{}, op by op\n{}", profile.test, to_text(profile.ops, profile.seconds));
  }
  return text;
}

Json profiles_json(std::span<const StepProfile> profiles) {
  Json list = Json::array();
  for (const StepProfile& profile : profiles) {
    Json ops = Json::array();
    for (const OpTime& time : profile.ops.times()) {
      ops.push_back({{"op", time.op},
                     {"tokens", time.shape.tokens},
                     {"in", time.shape.in},
                     {"out", time.shape.out},
                     {"keys", time.shape.keys},
                     {"calls", time.calls},
                     {"seconds", time.seconds}});
    }
    list.push_back({{"test", profile.test}, {"seconds", profile.seconds}, {"ops", std::move(ops)}});
  }
  return list;
}

}  // namespace bl
