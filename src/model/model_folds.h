#pragma once
// Folds: changes of weights that cancel each other, so that the model computes what it computed. A
// norm's weight goes into the linears behind it, or the outputs of one linear are scaled or rotated
// and the inputs of the next one the other way. Conversion looks for those that make rounding lose
// less.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "format/weight_matrix.h"

namespace bl {

// A change of the channels of one side of a matrix: u' = R · (factors · u) for the vector u of one
// weight for each channel. R rotates runs of neighbouring channels, each by the same orthogonal and
// symmetric matrix (ChannelFold.IsItsMatrix writes it out): Hadamard's matrix on stretches
// as long as the largest power of two that divides a run, and Hartley's across these stretches.
struct ChannelFold {
  std::vector<float> factors = {};  // one for each channel; empty: 1
  std::int64_t run = 0;             // channels that are rotated together; 0: none
  bool empty() const { return factors.empty() && run == 0; }
};

struct MatrixFold {
  ChannelFold inputs;
  ChannelFold outputs;  // the bias follows
};

// Folds each row of an F32 matrix [rows, channels] in place.
void fold_columns(const TensorView& view, const ChannelFold& fold);
// The matrix as F32 [out, in], folded, with its bias. The sizes of the fold must fit.
DenseMatrix folded(const DenseMatrix& matrix, const MatrixFold& fold);
// A bias [out] of any float type as F32; an empty one stays empty.
HostArray folded_bias(const HostArray& bias, const ChannelFold& outputs);
// The columns of a table [rows, width] of any float type, folded and rounded to binary16, as files
// hold it. Throws kInvalidArgument for values beyond that.
HostArray folded_table(const std::string& name, const TensorView& table, const ChannelFold& fold);

// The folds of some linears, norms and tables of a model.
struct ModelFolds {
  std::map<std::int32_t, std::shared_ptr<const MatrixFold>> linears;  // by number
  // What takes the place of a tensor of a norm, by its name.
  std::map<std::string, std::shared_ptr<const std::vector<float>>> vectors;
  std::shared_ptr<const ChannelFold> tables;  // of the columns of the embedding and of positions
};

}  // namespace bl
