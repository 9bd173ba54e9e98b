#include "backend/cuda/moe/cuda_experts.h"

#include <algorithm>
#include <vector>

#include "backend/cuda/weights/cuda_matrix.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

struct Source {
  const PackedMatrix* matrix;
  TensorView bias;
};

Source source_of(const ExpertWeights& expert, int role) {
  switch (role) {
    case CudaExperts::kGate:
      return {expert.gate, expert.gate_bias};
    case CudaExperts::kUp:
      return {expert.up, expert.up_bias};
    default:
      return {expert.down, expert.down_bias};
  }
}

ExpertMatrix row_of(const Source& source) {
  ExpertMatrix row;
  const CudaMatrix& matrix = cuda_matrix(source.matrix);
  if (const CodeWeights* codes = matrix.codes()) {
    row.view = codes->view;
    row.feature_of_k = codes->feature_of_k;
  } else {
    row.rows = matrix.dense()->rows;
    row.type = matrix.dense()->type;
  }
  if (!source.bias.empty()) row.bias = source.bias.as<const float>();
  return row;
}

void add_facts(CudaExperts::Matrices& facts, const PackedMatrix& matrix) {
  facts.in = matrix.in();
  facts.out = matrix.out();
  const CodeWeights* codes = cuda_matrix(&matrix).codes();
  (codes != nullptr ? facts.some_codes : facts.some_plain) = true;
  if (facts.widths == 0 && codes != nullptr) {
    facts.kind = codes->view.kind;
    facts.zero = codes->view.zero;
  }
  facts.one_kind &=
      codes != nullptr && codes->view.kind == facts.kind && codes->view.zero == facts.zero;
  const bool exl2 = codes != nullptr && codes->view.kind == ScaleKind::kExl2;
  facts.all_exl2 &= exl2;
  facts.all_gptq &= codes != nullptr && !exl2;
  facts.is_identity &= codes != nullptr && codes->is_identity;
  if (codes == nullptr) return;
  facts.widths |= codes->plan.widths();
  facts.k_steps = std::max(facts.k_steps, codes->view.k_steps);
  facts.k_blocks = std::max(facts.k_blocks, codes->view.k_block_count);
  facts.copy_block_bytes =
      std::max(facts.copy_block_bytes, static_cast<std::int32_t>(codes->max_copy_block_bytes));
  facts.copy_block_scale_bytes = std::max(
      facts.copy_block_scale_bytes, static_cast<std::int32_t>(codes->max_copy_block_scale_bytes));
}

bool same_input_layout(const ExpertWeights& expert) {
  if (expert.gate == nullptr) return true;
  const CodeWeights* gate = cuda_matrix(expert.gate).codes();
  const CodeWeights* up = cuda_matrix(expert.up).codes();
  if (gate == nullptr || up == nullptr) return gate == up;
  return gate->input_layout == up->input_layout && gate->view.k_steps == up->view.k_steps;
}

bool same_permutation(const ExpertWeights& expert) {
  const CodeWeights* gate = expert.gate != nullptr ? cuda_matrix(expert.gate).codes() : nullptr;
  const CodeWeights* up = cuda_matrix(expert.up).codes();
  return gate != nullptr && up != nullptr && gate->permutation == up->permutation &&
         gate->view.k_steps == up->view.k_steps;
}

}  // namespace

CudaExperts::CudaExperts(Backend& backend, std::span<const ExpertWeights> all)
    : count_(static_cast<std::int64_t>(all.size())) {
  BL_CHECK(!all.empty());
  std::vector<ExpertMatrix> rows;
  rows.reserve(all.size() * kRoles);
  for (int role = 0; role < kRoles; ++role) {
    Matrices& facts = roles_[static_cast<std::size_t>(role)];
    for (const ExpertWeights& expert : all) {
      const Source source = source_of(expert, role);
      BL_CHECK((source.matrix == nullptr) == (source_of(all[0], role).matrix == nullptr));
      if (source.matrix == nullptr) {
        rows.emplace_back();
        continue;
      }
      BL_CHECK(facts.in == 0 ||
               (source.matrix->in() == facts.in && source.matrix->out() == facts.out));
      add_facts(facts, *source.matrix);
      facts.has_bias |= !source.bias.empty();
      rows.push_back(row_of(source));
    }
  }
  one_input_layout_ = std::all_of(all.begin(), all.end(), same_input_layout);
  one_permutation_ = std::all_of(all.begin(), all.end(), same_permutation);
  const auto bytes = static_cast<std::int64_t>(rows.size() * sizeof(ExpertMatrix));
  tables_ = Tensor(backend.allocate_weights(static_cast<std::size_t>(bytes)), DType::kU8, {bytes});
  backend.upload(tables_.view(), view_of(rows.data(), DType::kU8, {bytes}));
  for (std::size_t role = 0; role < kRoles; ++role) {
    if (roles_[role].in == 0) continue;
    roles_[role].table =
        tables_.view().as<const ExpertMatrix>() + role * static_cast<std::size_t>(count_);
  }
}

ExpertRows choices_of(const ExpertsArgs& args, const CudaExperts& experts) {
  ExpertRows rows;
  rows.experts = args.experts;
  rows.weights = args.weights.as<const float>();
  rows.weight_stride = args.weights.row_stride;
  rows.choices = static_cast<std::int32_t>(args.x.rows() * args.k);
  rows.k = static_cast<std::int32_t>(args.k);
  rows.expert_count = static_cast<std::int32_t>(experts.count());
  return rows;
}

ExpertRows blocks_of_choices(ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts,
                             std::int32_t block_rows) {
  const auto ints = [&](std::int64_t count) {
    return ctx.scratch->take(DType::kI32, {count}).as<std::int32_t>();
  };
  ExpertRows rows = choices_of(args, experts);
  rows.block_rows = block_rows;
  rows.blocks =
      static_cast<std::int32_t>(most_blocks(rows.choices, experts.count(), rows.block_rows));
  rows.live_blocks = ints(1);
  rows.expert_of_block = ints(rows.blocks);
  rows.rows_of_block = ints(rows.blocks);
  rows.row_of_choice = ints(rows.choices);
  rows.choice_of_row = ints(std::int64_t{rows.blocks} * rows.block_rows);
  return rows;
}

}  // namespace bl::cuda
