#pragma once
#include <cstdint>
#include <memory>

namespace bl {

class DraftSource;

struct SpeculationOptions {
  std::shared_ptr<DraftSource> source{};  // null: no guesses
  std::int64_t tokens = 0;                // guesses per sequence and step; 0: as many as pay
};

}  // namespace bl
