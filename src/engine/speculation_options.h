#pragma once
#include <cstdint>
#include <memory>

namespace bl {

class DraftSource;

struct SpeculationOptions {
  std::shared_ptr<DraftSource> source{};  // null: nothing is guessed
  std::int64_t tokens = 0;                // guessed for a sequence at once; 0: as many as pay
};

}  // namespace bl
