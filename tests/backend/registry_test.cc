// What is opened by name where a build or a machine has no card, and what it says of that.

#include "backend/registry.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace bl::test {
namespace {

bool knows(const std::string& name) {
  const std::vector<std::string> names = backend_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(Registry, AutoIsTheCpuWithoutACardAndSaysWhy) {
  if (knows("cuda:0")) GTEST_SKIP() << "there is a card here";
  testing::internal::CaptureStderr();
  const auto backend = open_backend("auto", {});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(backend->name(), "cpu");
  if (knows("cuda")) {
    EXPECT_NE(said.find("cuda:0: no NVIDIA driver here; using the CPU instead"), std::string::npos)
        << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  } else {
    EXPECT_EQ(said, "");
  }
}

TEST(Registry, CardsThatAreNotHereAreRefusedWithWhatToTake) {
  if (knows("cuda:0")) GTEST_SKIP() << "there is a card here";
  for (const char* name : {"cuda", "cuda:0", "cuda:3"}) {
    try {
      open_backend(name, {});
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_TRUE(std::string(error.what()).ends_with("; choose cpu instead")) << error.what();
    }
  }
}

TEST(Registry, TypingErrorsAreNamed) {
  try {
    check_backend_name("cup");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("unknown backend 'cup'; did you mean cpu?"))
        << error.what();
  }
  EXPECT_NO_THROW(check_backend_name("auto"));
  EXPECT_NO_THROW(check_backend_name("cuda:1"));  // whether it is there, opening tells
}

TEST(Registry, UnknownNamesAreRefusedWithThoseThatAreKnown) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999999999"}) {
    try {
      open_backend(name, {});
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("auto, cpu, ref"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace bl::test
