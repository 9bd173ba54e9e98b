#include "engine/mask_worker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <system_error>
#include <thread>

#include "sample/constraint_compiler.h"
#include "text/tokenizer.h"
#include "tiny_model.h"

namespace bl {
namespace {

// Many steps of many constraints, some of them prepared by the worker.
void expect_masks_of_many_turns(MaskWorker& worker) {
  const auto tokenizer = Tokenizer::load(test::make_tiny_model("mask_worker"));
  ConstraintCompiler compiler(*tokenizer);
  const CompiledConstraint compiled =
      compiler.compile({.kind = ConstraintSpec::Kind::kRegex, .text = "([a-z]+ [0-9]{1,3},)*"});
  std::vector<std::unique_ptr<Constraint>> own;
  std::vector<Constraint*> all;
  for (int i = 0; i < 200; ++i) {
    own.push_back(std::make_unique<Constraint>(compiled, std::vector<std::int32_t>{257}));
    all.push_back(own.back().get());
  }
  const std::string_view text = "ab 12,c 3,";
  for (std::size_t step = 0; step < 300; ++step) {
    // Few are prepared here, many by the worker.
    const std::span<Constraint* const> some = std::span(all).first(step % 3 == 0 ? 1 : all.size());
    {
      const MaskWorker::Turn turn(worker, some);
      if (step % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    const auto token = static_cast<std::int32_t>(text[step % text.size()]);
    for (Constraint* constraint : all) {
      ASSERT_TRUE(constraint->allows(token));
      ASSERT_FALSE(constraint->allows('?'));
      constraint->accept(token);
    }
  }
  const MaskWorker::Turn nothing(worker, {});
}

TEST(MaskWorker, PreparesEveryConstraintOfATurn) {
  MaskWorker worker;
  expect_masks_of_many_turns(worker);
}

TEST(MaskWorker, WorksWhereNoThreadStarts) {
  int tries = 0;
  MaskWorker worker([&](const MaskWorker::Loop&) -> std::thread {
    ++tries;
    throw std::system_error(EAGAIN, std::generic_category());
  });
  expect_masks_of_many_turns(worker);
  EXPECT_GT(tries, 0);
}

}  // namespace
}  // namespace bl
