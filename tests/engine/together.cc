#include "together.h"

#include <future>

namespace bl::test {

std::vector<RequestHandle> submit_together(Engine& engine, const std::vector<Request>& wanted) {
  std::promise<void> held_up;
  std::promise<void> go_on;
  Request first;
  first.prompt = {1};
  first.sampling.max_tokens = 1;
  first.after_sampling = [&](const SampledToken& token) {
    held_up.set_value();
    go_on.get_future().wait();
    return token.id;
  };
  RequestHandle before = engine.submit(std::move(first));
  held_up.get_future().wait();
  std::vector<RequestHandle> handles;
  for (const Request& request : wanted) handles.push_back(engine.submit(request));
  go_on.set_value();
  before.wait();
  return handles;
}

}  // namespace bl::test
