#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/model_session.h"
#include "model/step_batch.h"
#include "tensor/tensor.h"

namespace bl {

// Device memory for the hidden states of a step's rows, and host memory to read them from.
class StateRoom {
 public:
  // `states`: the wanted ones, as StateRows::blocks. Throws kInvalidArgument for a state that the
  // model does not have. The session must outlive it.
  StateRoom(ModelSession& session, std::span<const std::int32_t> states);

  std::span<const StateRows> rows() const { return rows_; }
  // Returns the first `count` rows of one of rows() in host memory, F32 [count, hidden], valid
  // until the next call.
  TensorView fetch(const StateRows& rows, std::int64_t count);

 private:
  Backend& backend_;
  std::vector<Tensor> tensors_;
  std::vector<StateRows> rows_;
  Tensor host_;
};

}  // namespace bl
