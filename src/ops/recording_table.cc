#include "ops/recording_table.h"

#include <algorithm>

namespace bl {
namespace {

// For ops that read and write rows of one width.
OpCall same_width(std::string_view op, const TensorView& x) {
  return {op, {.tokens = x.rows(), .in = x.columns(), .out = x.columns()}};
}

OpCall call_of(const EmbedArgs& a) {
  return {"embed", {.tokens = a.tokens, .out = a.out.columns()}};
}
OpCall call_of(const NormArgs& a) { return same_width("norm", a.x); }
OpCall call_of(const ActivateArgs& a) {
  const std::int64_t inputs = a.up.empty() ? 1 : 2;
  const std::int64_t width = a.gate.columns();
  return {"activate", {.tokens = a.gate.rows(), .in = inputs * width, .out = width}};
}

OpCall call_of(const AddArgs& a) { return same_width("add", a.x); }
OpCall call_of(const ScaleArgs& a) { return same_width("scale", a.x); }
OpCall call_of(const GateArgs& a) { return same_width("gate", a.x); }
OpCall call_of(const ClampArgs& a) { return same_width("clamp", a.x); }
OpCall call_of(const RopeArgs& a) { return same_width("rope", a.x); }

OpCall call_of(const CopyRowsArgs& a) {
  return {"copy_rows", {.tokens = a.count, .in = a.x.columns(), .out = a.x.columns()}};
}
OpCall call_of(const AddRowsArgs& a) {
  return {"add_rows", {.tokens = a.y.rows(), .in = a.y.columns(), .out = a.y.columns()}};
}

OpCall call_of(const MatmulArgs& a) {
  OpCall call{"matmul", {}};
  for (const MatmulOutput& output : a.outputs) {
    call.shape.tokens = output.out.rows();
    call.shape.in = output.weight->in();
    call.shape.out += output.weight->out();
  }
  return call;
}

OpCall call_of(const RouteArgs& a) {
  return {"route", {.tokens = a.logits.rows(), .in = a.logits.columns(), .out = a.k}};
}
// `out` counts the intermediate elements of all experts that one token visits.
OpCall call_of(const ExpertsArgs& a) {
  return {"experts", {.tokens = a.x.rows(), .in = a.x.columns(), .out = a.k * a.intermediate}};
}

OpCall call_of(const KvWriteArgs& a) {
  return {"kv_write", {.tokens = a.k.rows(), .in = a.k.columns() + a.v.columns()}, &a};
}
OpCall call_of(const AttentionArgs& a) {
  OpCall call{"attention", {.tokens = a.q.rows(), .in = a.q.columns(), .out = a.q.columns()}};
  for (const SequenceSpan& span : a.sequences) {
    call.shape.keys = std::max<std::int64_t>(call.shape.keys, span.past + span.tokens);
  }
  call.attention = &a;
  return call;
}
OpCall call_of(const RopeAndWriteArgs& a) {
  return {"rope_and_write",
          {.tokens = a.q.x.rows(),
           .in = a.q.x.columns() + a.k.x.columns() + a.write.v.columns(),
           .out = a.q.x.columns()}};
}
OpCall call_of(const RopeAndWriteArgs& rope, const AttentionArgs& attention) {
  OpCall call{"rope_write_attend", call_of(rope).shape};
  call.shape.keys = call_of(attention).shape.keys;
  return call;
}
OpCall call_of(const ArgmaxArgs& a) {
  return {"argmax", {.tokens = a.logits.rows(), .in = a.logits.columns()}};
}
OpCall call_of(const SampleArgs& a) {
  return {"sample", {.tokens = a.logits.rows(), .in = a.logits.columns()}};
}

const RecordingTable& table_of(const ExecContext& ctx) {
  return *static_cast<const RecordingTable*>(ctx.ops);
}

// Ops run with the wrapped table, so that the ops they call are not reported again.
ExecContext inner_context(const ExecContext& ctx) {
  ExecContext inner = ctx;
  inner.ops = &table_of(ctx).table();
  return inner;
}

template <auto kOp>
struct Recorded;

template <class... Args, void (*OpTable::*kOp)(ExecContext&, Args...)>
struct Recorded<kOp> {
  static void run(ExecContext& ctx, Args... args) {
    const RecordingTable& recording = table_of(ctx);
    const OpCall call = call_of(args...);
    ExecContext inner = inner_context(ctx);
    recording.observer().before(inner, call);
    (recording.table().*kOp)(inner, args...);
    recording.observer().after(inner, call);
  }
};

template <class Answer, class... Args, Answer (*OpTable::*kOp)(const ExecContext&, Args...)>
struct Recorded<kOp> {
  static Answer run(const ExecContext& ctx, Args... args) {
    return (table_of(ctx).table().*kOp)(inner_context(ctx), args...);
  }
};

// Replaces the ops that the table has; an op that it lacks stays null.
template <auto... kOps>
void record(OpTable& table) {
  (void(table.*kOps = table.*kOps == nullptr ? nullptr : &Recorded<kOps>::run), ...);
}

}  // namespace

RecordingTable::RecordingTable(const OpTable& table, OpObserver& observer)
    : OpTable(table), table_(table), observer_(observer) {
  static_assert(sizeof(OpTable) == 20 * sizeof(void*),
                "a new op of OpTable must be recorded below, too");
  record<&OpTable::embed, &OpTable::norm, &OpTable::activate, &OpTable::add, &OpTable::scale,
         &OpTable::gate, &OpTable::clamp, &OpTable::copy_rows, &OpTable::add_rows, &OpTable::matmul,
         &OpTable::route, &OpTable::experts, &OpTable::rope, &OpTable::kv_write,
         &OpTable::attention, &OpTable::rope_and_write, &OpTable::rope_write_attend,
         &OpTable::argmax, &OpTable::sample, &OpTable::gemm_fusion>(*this);
}

}  // namespace bl
