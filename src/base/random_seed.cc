#include "base/random_seed.h"

#include <random>

namespace bl {

std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace bl
