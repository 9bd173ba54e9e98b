// Arithmetic of kernels, compiled for the host.

#include "backend/cuda/device/device_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace bl::cuda {
namespace {

TEST(DeviceMath, PowersBringTheLargestWhereItIsWanted) {
  for (const int exponent : {0, 9, 13}) {
    for (int own = -80; own <= 80; ++own) {
      for (const float mantissa : {1.0f, 1.5f, std::nextafter(2.0f, 1.0f)}) {
        const float largest = std::ldexp(mantissa, own);
        const float power = power_of_two_for(largest, exponent);
        EXPECT_EQ(power, std::ldexp(1.0f, own - exponent)) << largest;
        EXPECT_EQ(std::ilogb(largest / power), exponent) << largest;
      }
    }
  }
}

TEST(DeviceMath, PowersAndTheirInversesAreFinite) {
  using Limits = std::numeric_limits<float>;
  EXPECT_EQ(power_of_two_for(Limits::max(), 0), 0x1p100f);
  EXPECT_EQ(power_of_two_for(Limits::min(), 0), 0x1p-100f);
  EXPECT_EQ(power_of_two_for(Limits::denorm_min(), 13), 0x1p-100f);
  for (const float value : {0.0f, -0.0f, Limits::infinity(), Limits::quiet_NaN(), -1.0f}) {
    EXPECT_EQ(power_of_two_for(value, 13), 1.0f) << value;
  }
}

}  // namespace
}  // namespace bl::cuda
