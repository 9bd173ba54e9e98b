// How much of a card's memory conversions take, by the planner that needs no card.

#include "convert/device_plan.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/registry.h"
#include "convert/host_fitting.h"
#include "support/error_of.h"

namespace bl::test {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A block of attention and a gated feed-forward layer, with binary16 weights.
struct BlockShape {
  std::int64_t hidden, kv, intermediate, vocab;

  std::vector<PlannedMatrix> linears() const {
    return {{"q", hidden, hidden},
            {"k", hidden, kv},
            {"v", hidden, kv},
            {"o", hidden, hidden},
            {"gate", hidden, intermediate},
            {"up", hidden, intermediate},
            {"down", intermediate, hidden}};
  }
};

std::uint64_t bytes_of(const BlockShape& shape, std::int64_t row_tokens = 1024) {
  const Planner planner = open_planner("cuda", {});
  const std::vector<PlannedMatrix> linears = shape.linears();
  DeviceSizes sizes;
  sizes.linears = linears;
  sizes.hidden = shape.hidden;
  sizes.head_out = shape.vocab;
  for (const PlannedMatrix& linear : linears) {
    sizes.block += 2 * static_cast<std::uint64_t>(linear.in * linear.out);
  }
  sizes.ends = 4 * static_cast<std::uint64_t>(shape.hidden * shape.vocab);
  sizes.scratch = kGiB / 2;
  sizes.row_tokens = row_tokens;
  return device_work_bytes(*planner.backend, sizes);
}

constexpr BlockShape kSmall{4096, 1024, 14336, 128256}, kLarge{8192, 1024, 28672, 128256};

TEST(DevicePlan, OfALargeModelFitsACardOf24GiB) {
  EXPECT_LT(bytes_of(kLarge), 22 * kGiB);
  EXPECT_GT(bytes_of(kLarge), 18 * kGiB);  // H, Uᵀ and the doubles of its widest input alone
  EXPECT_LT(bytes_of(kSmall), 11 * kGiB);
}

std::uint64_t rounding_bytes(std::int64_t group, bool sweeps) {
  const Planner planner = open_planner("cuda", {});
  return planner.backend
      ->fitting_bytes({.in = 4096, .out = 14336, .group = group, .sweeps = sweeps})
      .round;
}

// One group of all slots, as --group_size -1 asks for, takes more; sweeps do, too.
TEST(DevicePlan, CountsGroupsAndSweeps) {
  EXPECT_GT(rounding_bytes(4096, true), rounding_bytes(128, true));
  EXPECT_GT(rounding_bytes(128, true), rounding_bytes(128, false));
  EXPECT_GT(bytes_of(kSmall, 64 * 1024), bytes_of(kSmall));
}

TEST(DevicePlan, IsNothingForAHost) {
  const auto backend = open_backend("cpu", {.threads = 1});
  EXPECT_EQ(device_work_bytes(*backend, {}), 0u);
}

// Remembers what it was told.
class RoomFitting : public HostFitting {
 public:
  using HostFitting::HostFitting;
  void set_row_room(std::size_t bytes) override { room = bytes; }

  std::size_t room = 0;
};

// A host that says that it has memory of its own, of which little is free.
class SmallCard : public CpuBackend {
 public:
  explicit SmallCard(std::uint64_t free) : CpuBackend(1), free_(free) {}
  bool reads_host_memory() const override { return false; }
  std::string_view name() const override { return "cuda:7"; }
  std::uint64_t free_memory() const override { return free_; }
  std::size_t own_bytes() const override { return 2000; }
  FittingOps* fitting() override { return &host_; }
  std::size_t row_room() const { return host_.room; }

 private:
  std::uint64_t free_;
  CpuBackend cpu_{1};
  RoomFitting host_{cpu_};
};

TEST(DevicePlan, RefusesWhatDoesNotFit) {
  SmallCard card(1000);
  const std::string error = error_of([&] { plan_device(card, {}, 0); }, ErrorCode::kOutOfMemory);
  EXPECT_NE(error.find("cuda:7"), std::string::npos) << error;
  EXPECT_NE(error.find("--backend cpu"), std::string::npos) << error;
  EXPECT_EQ(error.find("--device-memory"), std::string::npos) << error;
}

TEST(DevicePlan, LeavesTheRestToRows) {
  SmallCard card(kGiB);
  const std::uint64_t work = device_work_bytes(card, {});
  plan_device(card, {}, 0);
  EXPECT_EQ(card.row_room(), kGiB - work);
  plan_device(card, {}, work + 500);
  EXPECT_EQ(card.row_room(), 500u);
  plan_device(card, {}, 2 * kGiB);
  EXPECT_EQ(card.row_room(), kGiB - work);
  const std::string error =
      error_of([&] { plan_device(card, {}, work - 1); }, ErrorCode::kOutOfMemory);
  EXPECT_NE(error.find("--device-memory"), std::string::npos) << error;
}

}  // namespace
}  // namespace bl::test
