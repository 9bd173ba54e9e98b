#pragma once
#include <array>
#include <span>

#include "backend/cuda/moe/expert_matrix.h"
#include "ops/backend.h"
#include "ops/matmul.h"

namespace bl::cuda {

// The matrices of a layer's experts in device tables, where kernels find those that the router
// chose.
class CudaExperts final : public PackedExperts {
 public:
  enum Role { kGate, kUp, kDown, kRoles };

  // What launches need to know of all experts' matrices of one role.
  struct Matrices {
    const ExpertMatrix* table = nullptr;  // device, [experts]; null: there are none
    std::int64_t in = 0;
    std::int64_t out = 0;
    bool some_codes = false;
    bool some_plain = false;
    bool all_exl2 = true;
    bool all_gptq = true;
    bool is_identity = true;  // all have codes whose features are in their own order
    bool has_bias = false;
    WidthSet widths = 0;  // of codes, in any expert
    // Whether all have codes with scales and zero points of one kind; then which.
    bool one_kind = true;
    ScaleKind kind = ScaleKind::kExl2;
    std::int32_t zero = 0;
    // Codes, the most of any expert: k_steps and k_blocks of an n_tile; bytes of a copy_block, see
    // CodeWeights.
    std::int32_t k_steps = 0;
    std::int32_t k_blocks = 0;
    std::int32_t copy_block_bytes = 0;
    std::int32_t copy_block_scale_bytes = 0;
  };

  CudaExperts(Backend& backend, std::span<const ExpertWeights> all);
  std::int64_t count() const { return count_; }
  const Matrices& matrices(Role role) const { return roles_[role]; }
  // Whether gate and up of every expert have the same input layout.
  bool one_input_layout() const { return one_input_layout_; }
  // Whether gate and up of every expert have codes and the same order of features.
  bool one_permutation() const { return one_permutation_; }

 private:
  std::int64_t count_;
  std::array<Matrices, kRoles> roles_;
  bool one_input_layout_ = true;
  bool one_permutation_ = true;
  Tensor tables_;
};

// The choices of a call, without the tables in which they are sorted.
ExpertRows choices_of(const ExpertsArgs& args, const CudaExperts& experts);
// Returns choices_of() in blocks of `block_rows`, with scratch memory for the tables that
// sort_choices() writes.
ExpertRows blocks_of_choices(ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts,
                             std::int32_t block_rows);

}  // namespace bl::cuda
