#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_model.h"
#include "model/step_batch.h"

namespace bl {

// Which rows of a session's carried states (CarriedStates) are whose: those of the last step and of
// the last round of guesses behind it. A state that is not there is zero; that makes guesses worse
// and nothing else.
class CarriedRows {
 public:
  // `memory`: F32 [places.rows(), hidden]; empty where nothing is carried.
  CarriedRows(const TensorView& memory, const CarriedPlaces& places)
      : memory_(memory), places_(places) {}

  // What a step of these items, in this order, reads and leaves.
  void join_step(std::span<const StepItem> items, StepBatch& batch);
  // The same of a round of guesses (StepModel::draft), one behind the other.
  void join_round(std::span<const StepItem> items, StepBatch& batch);

 private:
  // States of positions [begin, begin + count) of a sequence.
  struct Run {
    const Sequence* sequence = nullptr;
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t row = 0;
  };
  std::int32_t find(std::span<const Run> runs, const Sequence* sequence,
                    std::int64_t position) const;

  TensorView memory_;
  CarriedPlaces places_;
  std::vector<Run> step_;
  std::vector<Run> round_;
};

}  // namespace bl
