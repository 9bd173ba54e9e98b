// The main program of every test program.

#include <gtest/gtest.h>

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  const int status = RUN_ALL_TESTS();
  if (status != 0) return status;
  // A run that skipped something has not passed: ctest shows it as skipped.
  return testing::UnitTest::GetInstance()->skipped_test_count() > 0 ? BL_SKIPPED_STATUS : 0;
}
