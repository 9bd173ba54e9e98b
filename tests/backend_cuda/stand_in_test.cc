// A card that acts as one of an earlier compute capability: its limits, and how many CTAs fit.

#include "backend/cuda/device/stand_in.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace bl::cuda {
namespace {

constexpr std::size_t kReserved = 1024;  // of every CTA

// An H200 as it describes itself.
DeviceFacts h200() {
  DeviceFacts facts;
  facts.compute_capability = 90;
  facts.multiprocessors = 132;
  facts.shared_bytes_per_cta = 227 << 10;
  facts.shared_bytes_per_multiprocessor = 228 << 10;
  return facts;
}
DeviceFacts acting_as(int capability) {
  DeviceFacts facts = h200();
  act_as(facts, capability, 80);
  return facts;
}

TEST(StandIn, TheVariableNamesACapability) {
  EXPECT_EQ(parse_stand_in("80"), 80);
  EXPECT_EQ(parse_stand_in("86"), 86);
  EXPECT_EQ(parse_stand_in("89"), 89);
  for (const char* text : {"", "8.6", "75", "90", "86 ", "0x50"}) {
    EXPECT_THROW(parse_stand_in(text), Error) << text;
  }
}

TEST(StandIn, LimitsAreThoseOfTheCapability) {
  const DeviceFacts ampere = acting_as(86);
  EXPECT_TRUE(ampere.is_stand_in());
  EXPECT_EQ(ampere.compute_capability, 86);
  EXPECT_EQ(ampere.shared_bytes_per_cta, 99u << 10);
  EXPECT_EQ(ampere.shared_bytes_per_multiprocessor, 100u << 10);
  EXPECT_EQ(ampere.multiprocessors, 132);
  EXPECT_FALSE(ampere.dependent_launch());
  EXPECT_EQ(acting_as(80).shared_bytes_per_cta, 163u << 10);
  EXPECT_EQ(acting_as(89).shared_bytes_per_cta, 99u << 10);
}

TEST(StandIn, TheBuildMustBeOneForIt) {
  DeviceFacts facts = h200();
  act_as(facts, 0, 90);
  EXPECT_FALSE(facts.is_stand_in());
  EXPECT_EQ(facts.compute_capability, 90);
  EXPECT_THROW(act_as(facts, 0, 80), Error) << "kernels without the code that plans for 9.0 need";
  EXPECT_THROW(act_as(facts, 86, 90), Error) << "kernels with code that 8.6 lacks";
  EXPECT_THROW(act_as(facts, 80, 86), Error);
  DeviceFacts turing = h200();
  turing.compute_capability = 75;
  act_as(turing, 0, 75);
  EXPECT_FALSE(turing.is_stand_in());
  EXPECT_THROW(act_as(turing, 80, 75), Error);
  DeviceFacts own = h200();
  own.compute_capability = 86;
  act_as(own, 86, 86);
  EXPECT_FALSE(own.is_stand_in()) << "the card is what it acts as";
}

TEST(StandIn, WarpsAndSharedMemoryLimitTheCtas) {
  const DeviceFacts facts = acting_as(86);
  EXPECT_EQ(ctas_as(facts, {.threads = 512}), 3);  // 48 warps
  EXPECT_EQ(ctas_as(facts, {.threads = 1024}), 1);
  EXPECT_EQ(ctas_as(facts, {.threads = 32}), 16);
  EXPECT_EQ(ctas_as(facts, {.threads = 128, .dynamic_shared_bytes = 40 << 10}), 2);
  EXPECT_EQ(ctas_as(facts, {.threads = 128, .static_shared_bytes = 50 << 10}), 1);
  EXPECT_EQ(ctas_as(facts, {.threads = 128, .dynamic_shared_bytes = 99 << 10}), 1);
  EXPECT_EQ(ctas_as(facts, {.threads = 128, .dynamic_shared_bytes = 100 << 10}), 0);
  EXPECT_EQ(ctas_as(acting_as(80), {.threads = 1024}), 2);  // 64 warps
}

// With the padding the card has room for exactly as many CTAs, and a CTA never asks for less.
TEST(StandIn, PaddingLimitsTheCardToo) {
  for (const int capability : {80, 86, 89}) {
    const DeviceFacts facts = acting_as(capability);
    for (const int threads : {32, 128, 512, 1024}) {
      for (const std::size_t fixed : {0, 256, 9000}) {
        for (std::size_t bytes = 0; bytes + fixed <= facts.shared_bytes_per_cta; bytes += 3000) {
          const CtaDemand demand{threads, fixed, bytes};
          const int ctas = ctas_as(facts, demand);
          const std::size_t padded = padded_shared_bytes(facts, demand);
          EXPECT_GE(padded, bytes);
          const std::size_t all = padded + fixed + kReserved;
          EXPECT_EQ(static_cast<int>(facts.card_shared_bytes_per_multiprocessor / all), ctas)
              << capability << ", " << threads << " threads, " << fixed << " + " << bytes;
        }
      }
    }
  }
}

}  // namespace
}  // namespace bl::cuda
