#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_model.h"
#include "model/step_batch.h"

namespace bl {

// Keeps track of which row of a session's carried states (CarriedStates) belongs to which position
// of which sequence, for the last step and the last round of guesses behind it. A state that is not
// there counts as zero, which makes guesses worse and changes nothing else.
class CarriedRows {
 public:
  // `memory`: F32 [places.rows(), hidden]; empty where the session carries no states.
  CarriedRows(const TensorView& memory, const CarriedPlaces& places)
      : memory_(memory), places_(places) {}

  // Sets the rows that a step of these items, in this order, reads and leaves.
  void join_step(std::span<const StepItem> items, StepBatch& batch);
  // Sets the rows of a round of guesses (StepModel::draft); rounds follow one another.
  void join_round(std::span<const StepItem> items, StepBatch& batch);

 private:
  // The states of positions [begin, begin + count) of a sequence, from `row` on.
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
