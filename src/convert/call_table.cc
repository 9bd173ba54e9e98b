#include "convert/call_table.h"

#include <array>

#include "base/check.h"

namespace bl {
namespace {

const CallTable& table_of(const ExecContext& ctx) {
  return *static_cast<const CallTable*>(ctx.ops);
}

ExecContext inner_context(const ExecContext& ctx) {
  ExecContext inner = ctx;
  inner.ops = &table_of(ctx).table();
  return inner;
}

template <auto kOp>
struct Gated;

template <class... Args, void (*OpTable::*kOp)(ExecContext&, Args...)>
struct Gated<kOp> {
  static void run(ExecContext& ctx, Args... args) {
    if (!table_of(ctx).running()) return;
    ExecContext inner = inner_context(ctx);
    (table_of(ctx).table().*kOp)(inner, args...);
  }
};

// Replaces the ops that the table has; an op that it lacks stays null.
template <auto... kOps>
void gate_ops(OpTable& table) {
  (void(table.*kOps = table.*kOps == nullptr ? nullptr : &Gated<kOps>::run), ...);
}

}  // namespace

CallInput::CallInput(Products& products, const MatmulArgs& args) : x(products.keep(args.x)) {}

CallInput::CallInput(Products& products, const ExpertsArgs& args)
    : x(products.keep(args.x)),
      routed(args),
      routed_weights(products.copy(args.weights)),
      experts(static_cast<std::size_t>(args.x.rows() * args.k)),
      weights(products.to_host(args.weights)) {
  const Shape shape{args.x.rows(), args.k};
  const std::size_t bytes = experts.size() * sizeof(std::int32_t);
  routed_experts = Tensor(products.ops().allocate(bytes), DType::kI32, shape);
  auto* const chosen = const_cast<std::int32_t*>(args.experts);  // which is only read
  const TensorView host = view_of(experts.data(), DType::kI32, shape);
  products.backend().download(host, view_of(chosen, DType::kI32, shape));
  products.backend().upload(routed_experts.view(), host);
  routed->x = {};
  routed->experts = routed_experts.view().as<const std::int32_t>();
  routed->weights = routed_weights.view();
}

CallTable::CallTable(Backend& backend)
    : OpTable(backend.ops()), backend_(backend), table_(backend.ops()) {
  static_assert(sizeof(OpTable) == 20 * sizeof(void*),
                "a new op of OpTable must be gated below, too");
  gate_ops<&OpTable::embed, &OpTable::norm, &OpTable::activate, &OpTable::add, &OpTable::scale,
           &OpTable::gate, &OpTable::clamp, &OpTable::copy_rows, &OpTable::add_rows, &OpTable::rope,
           &OpTable::kv_write, &OpTable::attention, &OpTable::rope_and_write,
           &OpTable::rope_write_attend, &OpTable::route, &OpTable::argmax, &OpTable::sample>(*this);
  OpTable& ops = *this;
  ops.matmul = [](ExecContext& ctx, const MatmulArgs& args) { table_of(ctx).matmul(ctx, args); };
  ops.experts = [](ExecContext& ctx, const ExpertsArgs& args) { table_of(ctx).experts(ctx, args); };
  gemm_fusion = nullptr;
}

void CallTable::begin(const CallPlan& plan) const {
  plan_ = &plan;
  next_ = 0;
}

void CallTable::matmul(ExecContext& ctx, const MatmulArgs& args) const {
  const int call = next_++;
  if (!reaches(call)) return;
  MatmulArgs own = args;
  if (call == plan_->resume) own.x = plan_->x;
  if (plan_->before && is_heard(call)) plan_->before(call, own);
  if (call == plan_->stop) return;
  std::array<MatmulOutput, 4> outputs;
  BL_CHECK(args.outputs.size() <= outputs.size());
  for (std::size_t i = 0; i < args.outputs.size(); ++i) {
    outputs[i] = args.outputs[i];
    outputs[i].weight = in_place_of(outputs[i].weight);
  }
  own.outputs = std::span(outputs.data(), args.outputs.size());
  ExecContext inner = inner_context(ctx);
  table_.matmul(inner, own);
  own.outputs = args.outputs;
  if (plan_->after && is_heard(call)) plan_->after(call, own);
}

void CallTable::experts(ExecContext& ctx, const ExpertsArgs& args) const {
  const int call = next_++;
  if (!reaches(call)) return;
  ExpertsArgs own = args;
  if (call == plan_->resume) {
    own.x = plan_->x;
    own.experts = plan_->input->routed->experts;
    own.weights = plan_->input->routed->weights;
  }
  if (plan_->before_experts && is_heard(call)) plan_->before_experts(call, own);
  if (call == plan_->stop) return;
  std::vector<ExpertWeights> all(args.all.begin(), args.all.end());
  if (plan_->substitutes != nullptr) {
    for (ExpertWeights& expert : all) {
      expert.gate = in_place_of(expert.gate);
      expert.up = in_place_of(expert.up);
      expert.down = in_place_of(expert.down);
    }
    own.all = all;
    // The one that there is was made of the matrices that are replaced.
    if (args.packed != nullptr) {
      replaced_experts_ = backend_.pack_experts(all);
      own.packed = replaced_experts_.get();
    }
  }
  ExecContext inner = inner_context(ctx);
  table_.experts(inner, own);
}

const PackedMatrix* CallTable::in_place_of(const PackedMatrix* matrix) const {
  if (plan_->substitutes == nullptr) return matrix;
  const auto other = plan_->substitutes->find(matrix);
  return other != plan_->substitutes->end() ? other->second : matrix;
}

}  // namespace bl
