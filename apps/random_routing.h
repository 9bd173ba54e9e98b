#pragma once
#include <cstdint>

#include "model/model_spec.h"
#include "model/tensor_outline.h"
#include "tensor/tensor_view.h"

namespace bl {

// How tokens choose experts in a random model whose logits are compared. A choice by random scores
// often hangs on a last bit: of 128 scores, the eighth and the ninth are close. So every token has
// one of `classes` classes, which its row of the embedding says in a channel of its own, louder
// than all that blocks add to that channel; norms of the residual stream turn these channels down
// again, and routers read them alone. Each class has its experts in each layer, and each expert is
// chosen by as many classes as any other, so a step of random tokens meets as many distinct experts
// as even routing would.
class RoutingCode {
 public:
  // Says nothing where no layer routes.
  RoutingCode(const ModelSpec& spec, const TensorOutline& outline);
  bool present() const { return classes_ > 0; }

  // Rows of a table, [rows, hidden]: random values up to `size` on either side of zero, and the
  // class of each.
  void fill_table(const TensorView& table, std::uint64_t seed, float size) const;
  // Weights of a norm of the stream, [hidden], of random signs. `offset` is what the model adds.
  void fill_norm(const TensorView& weight, std::uint64_t seed, float offset) const;
  // Weights of a router, [experts, hidden].
  void fill_router(const TensorView& weight, const OutlinedLinear& router) const;

 private:
  std::int64_t channel_of(std::int64_t code) const { return code * hidden_ / classes_; }

  std::int64_t hidden_ = 0;
  std::int64_t classes_ = 0;  // 0: no layer routes
  float embed_multiplier_ = 1;
  float stream_ = 1;     // root mean square of what blocks have added behind the last of them
  float amplitude_ = 1;  // of a class's channel in the stream
  float spread_ = 1;     // root mean square of the stream with that channel
};

}  // namespace bl
