// A step run again and again under one key: its small copies (uploads, pieces to and from the
// host), between which launches stand, come out as if each were made after the one before it,
// however a backend records and joins them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/device.h"

namespace bl::test {
namespace {

constexpr std::size_t kStepBytes = 16 << 10;  // little, so that copies meet often
constexpr std::uint64_t kFirstKey = 1 << 10;

enum class CopyKind { kUpload, kWithin, kOut, kBack, kLaunch };

// Bytes to `to` from `from` (an upload: from values of its own).
struct Action {
  CopyKind kind = CopyKind::kUpload;
  std::size_t to = 0;
  std::size_t from = 0;
  std::size_t bytes = 0;
};

// Memory of the backend and of the host, beside a picture of both that is made in order.
class RecordedStep : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_NE(host_.data(), nullptr);
    std::memset(host_.data(), 0, kStepBytes);
  }

  std::size_t below(std::size_t n) {
    return static_cast<std::size_t>(random_.below(static_cast<int>(n)));
  }

  Action random_action() {
    Action action;
    action.kind = static_cast<CopyKind>(below(5));
    // Whole words and not, and now and then more than is worth a kernel.
    const std::size_t most = below(8) == 0 ? kStepBytes / 2 : 256;
    const std::size_t unit = below(8) == 0 && action.kind != CopyKind::kLaunch ? 1 : 4;
    action.bytes = unit * (1 + below(most / unit));
    action.to = unit * below((kStepBytes - action.bytes) / unit + 1);
    action.from = unit * below((kStepBytes - action.bytes) / unit + 1);
    const bool one_memory = action.kind == CopyKind::kWithin || action.kind == CopyKind::kLaunch;
    const bool meet =
        action.from < action.to + action.bytes && action.to < action.from + action.bytes;
    if (one_memory && meet) action.kind = CopyKind::kUpload;  // CopyPiece: no overlap
    return action;
  }

  std::byte* on_host(std::size_t at) { return static_cast<std::byte*>(host_.data()) + at; }

  void enqueue(const Action& action, ExecContext& ctx) {
    Backend& backend = device_.backend();
    const auto bytes = static_cast<std::int64_t>(action.bytes);
    const auto row_at = [&](std::size_t at) {
      return view_of(reinterpret_cast<float*>(memory_ + at), {1, bytes / 4});
    };
    CopyPiece piece{memory_ + action.to, memory_ + action.from, action.bytes};
    switch (action.kind) {
      case CopyKind::kUpload: {
        std::byte* values = upload_.data() + action.from;
        backend.upload(view_of(piece.to, DType::kU8, {bytes}),
                       view_of(values, DType::kU8, {bytes}));
        return;
      }
      case CopyKind::kLaunch:
        ctx.ops->copy_rows(ctx, {row_at(action.from), first_row_, 1, row_at(action.to)});
        return;
      case CopyKind::kOut:
        piece.to = on_host(action.to);
        break;
      case CopyKind::kBack:
        piece.from = on_host(action.from);
        break;
      case CopyKind::kWithin:
        break;
    }
    backend.copy_pieces({&piece, 1});
  }

  void expect(const Action& action) {
    std::vector<std::byte>& to = action.kind == CopyKind::kOut ? host_picture_ : picture_;
    const std::vector<std::byte>* from = &picture_;
    if (action.kind == CopyKind::kUpload) from = &upload_;
    if (action.kind == CopyKind::kBack) from = &host_picture_;
    std::memcpy(to.data() + action.to, from->data() + action.from, action.bytes);
  }

  // Seven turns: plain, recorded and repeated ones of both lanes.
  void expect_in_order(std::uint64_t key, const std::vector<Action>& actions) {
    for (int turn = 0; turn < 7; ++turn) {
      std::generate(upload_.begin(), upload_.end(), [&] { return std::byte(below(256)); });
      device_.backend().run_step(key, turn % 2, device_.context(), [&](ExecContext& ctx) {
        for (const Action& action : actions) enqueue(action, ctx);
      });
      std::for_each(actions.begin(), actions.end(), [&](const Action& action) { expect(action); });
      device_.backend().synchronize();
      const std::vector<std::int32_t> words =
          device_.get(reinterpret_cast<const std::int32_t*>(memory_), kStepBytes / 4);
      ASSERT_EQ(std::memcmp(words.data(), picture_.data(), kStepBytes), 0) << "turn " << turn;
      ASSERT_EQ(std::memcmp(host_.data(), host_picture_.data(), kStepBytes), 0) << "turn " << turn;
    }
  }

  Device device_{GetParam()};
  Random random_{71};
  std::byte* memory_ = device_.zeros(kStepBytes);
  Buffer host_ = device_.backend().allocate_transfer(kStepBytes);
  const std::int32_t* first_row_ = device_.put(std::vector<std::int32_t>{0});
  std::vector<std::byte> picture_ = std::vector<std::byte>(kStepBytes);
  std::vector<std::byte> host_picture_ = std::vector<std::byte>(kStepBytes);
  std::vector<std::byte> upload_ = std::vector<std::byte>(kStepBytes);
};

// As the steps of a generator have them: a few uploads, launches, and what was chosen goes out.
TEST_P(RecordedStep, UploadsThenLaunchesThenOneOut) {
  expect_in_order(kFirstKey, {{CopyKind::kUpload, 0, 0, 4},
                              {CopyKind::kUpload, 256, 256, 128},
                              {CopyKind::kUpload, 512, 512, 256},
                              {CopyKind::kBack, 1024, 64, 64},
                              {CopyKind::kLaunch, 2048, 0, 512},
                              {CopyKind::kLaunch, 4096, 2048, 512},
                              {CopyKind::kOut, 0, 4096, 128}});
}

// Each needs what the one before it left, or writes over what that one read or wrote.
TEST_P(RecordedStep, CopiesThatMeet) {
  expect_in_order(kFirstKey, {{CopyKind::kUpload, 0, 0, 64},
                              {CopyKind::kWithin, 64, 0, 64},
                              {CopyKind::kUpload, 32, 128, 64},
                              {CopyKind::kOut, 0, 0, 128},
                              {CopyKind::kBack, 256, 64, 64},
                              {CopyKind::kUpload, 256, 0, 4},
                              {CopyKind::kOut, 64, 256, 64}});
}

TEST_P(RecordedStep, MoreThanOneKernelTakesAndNothingElse) {
  std::vector<Action> actions;
  for (std::size_t i = 0; i < 40; ++i) actions.push_back({CopyKind::kUpload, 128 * i, 64 * i, 64});
  expect_in_order(kFirstKey, actions);
}

TEST_P(RecordedStep, RandomOnes) {
  // Of each a graph for both lanes, and places for 64.
  for (std::uint64_t step = 0; step < 30; ++step) {
    std::vector<Action> actions(1 + below(40));
    std::generate(actions.begin(), actions.end(), [&] { return random_action(); });
    SCOPED_TRACE("step " + std::to_string(step));
    expect_in_order(kFirstKey + 2 * step, actions);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RecordedStep, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace bl::test
