#include "engine/generate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "base/error.h"
#include "tiny_model.h"

namespace bl {
namespace {

class GenerateTest : public testing::Test {
 protected:
  static std::unique_ptr<ModelSession> load() {
    SessionOptions options;
    options.model = test::make_tiny_model("generate", "");
    options.backend = "ref";
    options.threads = 1;
    options.sequences = 4;
    options.context = 512;
    return ModelSession::load(options);
  }
  GenerateTest() {
    options_.sampling.temperature = 1;
    options_.sampling.max_tokens = 12;
    options_.sampling.ban_end_tokens = true;
    options_.sampling.seed = 7;
  }
  void expect_stopped(Engine& engine, std::size_t prompts) {
    std::stop_source source;
    options_.stop = source.get_token();
    std::thread asks([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));  // is waiting by then, mostly
      source.request_stop();
    });
    EXPECT_TRUE(
        generate(engine, std::vector(prompts, GeneratePrompt{.text = "one"}), options_).empty());
    asks.join();
  }
  std::string alone(const std::string& prompt, std::uint64_t seed) {
    Request request;
    request.prompt = engine_.tokenizer().encode(prompt);
    request.sampling = options_.sampling;
    request.sampling.seed = seed;
    return engine_.submit(std::move(request)).wait().front().text;
  }
  Engine engine_{load()};
  GenerateOptions options_;
};

TEST_F(GenerateTest, PromptsInTheirOrderWithSeedsOfTheirOwn) {
  const std::vector<GeneratePrompt> prompts{{.text = "one"}, {.text = "two"}, {.text = "one"}};
  const std::vector<Generated> all = generate(engine_, prompts, options_);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].text, alone("one", 7));
  EXPECT_EQ(all[1].text, alone("two", 8));
  EXPECT_EQ(all[2].text, alone("one", 9));
  EXPECT_NE(all[0].text, all[2].text);
  options_.completion_only = false;
  EXPECT_EQ(generate(engine_, prompts, options_)[1].text, "two" + all[1].text);
  options_.sampling.n = 3;
  EXPECT_EQ(generate(engine_, prompts, options_)[2].answers.size(), 3u);
}

TEST_F(GenerateTest, SamplingAndNegativePromptsOfTheirOwn) {
  SamplingParams greedy = options_.sampling;
  greedy.temperature = 0;
  SamplingParams guided = greedy;
  guided.cfg_scale = 3;
  const std::vector<GeneratePrompt> prompts{
      {.text = "one", .sampling = greedy},
      {.text = "one", .negative = "another thing", .sampling = guided}};
  const std::vector<Generated> all = generate(engine_, prompts, options_);
  Request request;
  request.prompt = engine_.tokenizer().encode("one");
  request.negative_prompt = engine_.tokenizer().encode("another thing");
  request.sampling = guided;
  EXPECT_EQ(all[1].text, engine_.submit(request).wait().front().text);
  EXPECT_NE(all[0].text, all[1].text);
}

TEST_F(GenerateTest, LongPromptsLoseTheirBeginning) {
  std::string longer;
  while (engine_.tokenizer().encode(longer).size() < 700) longer += "word ";
  const std::vector<GeneratePrompt> prompts{{.text = longer}};
  EXPECT_THROW(generate(engine_, prompts, options_), Error);
  options_.cut_left = true;
  const Usage usage = generate(engine_, prompts, options_)[0].answers[0].usage;
  EXPECT_EQ(usage.prompt_tokens, 500);
  EXPECT_EQ(usage.generated_tokens, 12);
}

TEST_F(GenerateTest, AsManyAsTheCallerHas) {
  Engine small(load(), {.requests = 2});
  std::vector<GeneratePrompt> prompts(9);
  for (std::size_t i = 0; i < prompts.size(); ++i) prompts[i].text = std::string(i + 1, 'a');
  const std::vector<Generated> expected = generate(engine_, prompts, options_);
  const std::vector<Generated> all = generate(small, prompts, options_);
  ASSERT_EQ(all.size(), 9u);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].text, expected[i].text);
}

TEST_F(GenerateTest, StopsWhileOthersFillTheQueue) {
  Engine small(load(), {.requests = 1});
  Request other;
  other.prompt = {1};
  other.unread_tokens = 1;
  const RequestHandle handle = small.submit(other);
  expect_stopped(small, 2);
}

TEST_F(GenerateTest, StopsWhenAsked) {
  // A request before them holds up the first step, so that none is answered before.
  std::promise<void> go_on;
  Request first;
  first.prompt = {1};
  first.sampling.max_tokens = 1;
  first.after_sampling = [&](const SampledToken& token) {
    go_on.get_future().wait();
    return token.id;
  };
  RequestHandle before = engine_.submit(std::move(first));
  expect_stopped(engine_, 64);
  go_on.set_value();
  before.wait();
}

}  // namespace
}  // namespace bl
