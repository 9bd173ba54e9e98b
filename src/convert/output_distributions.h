#pragma once
#include <cstdint>
#include <vector>

#include "convert/products.h"

namespace bl {

// The softmax of rows of logits, for KL divergences from them.
class OutputDistributions {
 public:
  // `logits`: F32 [rows, vocab].
  OutputDistributions(Products& products, const TensorView& logits);

  std::int64_t rows() const { return p_.view().rows(); }
  // D(row ‖ softmax(logits)) in nats for each row of other logits of this shape.
  std::vector<double> divergences(const TensorView& logits) const;

 private:
  Products& products_;
  Tensor p_;                     // F32 [rows, vocab]
  std::vector<double> entropy_;  // [rows] −Σ p · ln p
};

}  // namespace bl
