#include "ops/recording_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/packed_matrix.h"

namespace bl::test {
namespace {

// Writes down every report.
struct Notes : OpObserver {
  void before(ExecContext& ctx, const OpCall& call) override { note("before", ctx, call); }
  void after(ExecContext& ctx, const OpCall& call) override { note("after", ctx, call); }
  void note(const char* when, const ExecContext& ctx, const OpCall& call) {
    lines.push_back(std::string(when) + " " + std::string(call.op));
    shapes.push_back(call.shape);
    device = ctx.device;
  }
  std::vector<std::string> lines;
  std::vector<OpShape> shapes;
  Device* device = nullptr;
};

// A table like a backend's: it carries state that its ops need, and one op calls another.
struct Ops : OpTable {
  mutable std::vector<std::string> done;
};
const Ops& ops_of(const ExecContext& ctx) { return *static_cast<const Ops*>(ctx.ops); }

void note_add(ExecContext& ctx, const AddArgs&) { ops_of(ctx).done.push_back("add"); }
void note_norm(ExecContext& ctx, const NormArgs&) {
  ctx.ops->add(ctx, {});
  ops_of(ctx).done.push_back("norm");
}
GemmFusion answer_fusion(const ExecContext& ctx, const GemmFusionQuery& query) {
  ops_of(ctx).done.push_back("gemm_fusion");
  return {.norm = true, .partials = query.adds->out() + query.tokens};
}

Ops some_ops() {
  Ops ops;
  ops.add = note_add;
  ops.norm = note_norm;
  ops.gemm_fusion = answer_fusion;
  return ops;
}

struct SomeDevice : Device {};

struct Matrix : PackedMatrix {
  Matrix(std::int64_t in, std::int64_t out) : PackedMatrix(in, out) {}
  std::size_t bytes() const override { return 0; }
};

TEST(RecordingTable, TellsOfEachOpOnce) {
  const Ops ops = some_ops();
  Notes notes;
  const RecordingTable table(ops, notes);
  SomeDevice device;
  ExecContext ctx{.ops = &table, .device = &device};
  std::vector<float> x(12);
  NormArgs norm;
  norm.x = view_of(x.data(), {3, 4});
  ctx.ops->norm(ctx, norm);
  EXPECT_EQ(ops.done, (std::vector<std::string>{"add", "norm"}));
  EXPECT_EQ(notes.lines, (std::vector<std::string>{"before norm", "after norm"}))
      << "what an op calls is a part of it";
  EXPECT_EQ(notes.shapes[0], (OpShape{.tokens = 3, .in = 4, .out = 4}));
  EXPECT_EQ(notes.device, &device);
  EXPECT_EQ(ctx.ops, &table);
}

TEST(RecordingTable, HasWhatTheTableHas) {
  const Ops ops = some_ops();
  Notes notes;
  const RecordingTable table(ops, notes);
  EXPECT_EQ(table.embed, nullptr);
  EXPECT_EQ(table.rope_write_attend, nullptr);
  const ExecContext ctx{.ops = &table};
  const Matrix weight(5, 7);
  const GemmFusion fusion = fusion_of(ctx, {.tokens = 10, .adds = &weight});
  EXPECT_TRUE(fusion.norm);
  EXPECT_FALSE(fusion.activation);
  EXPECT_EQ(fusion.partials, 17);
  EXPECT_EQ(ops.done, std::vector<std::string>{"gemm_fusion"});
  EXPECT_TRUE(notes.lines.empty()) << "a question is no op";
}

template <class... Args>
void do_nothing(ExecContext&, Args...) {}

// Checks the name and the sizes that are reported for an op that does nothing.
class RecordedShapes : public testing::Test {
 protected:
  // Fills in one op of the table and calls it.
  template <class... Args>
  void expect(void (*OpTable::*op)(ExecContext&, const Args&...), const char* name,
              const OpShape& shape, const Args&... args) {
    ops_.*op = do_nothing<const Args&...>;
    Notes notes;
    const RecordingTable table(ops_, notes);
    ctx_.ops = &table;
    (table.*op)(ctx_, args...);
    EXPECT_EQ(notes.lines.back(), std::string("after ") + name);
    EXPECT_EQ(notes.shapes.back(), shape) << name;
  }
  TensorView rows(std::int64_t count, std::int64_t width) {
    return view_of(memory_.data(), {count, width});
  }
  TensorView heads(std::int64_t count, std::int64_t of) {
    return view_of(memory_.data(), {count, of, 4});
  }

 private:
  std::vector<float> memory_ = std::vector<float>(64);
  OpTable ops_;
  ExecContext ctx_;
};

TEST_F(RecordedShapes, OfOpsThatTouchEachElementOnce) {
  EmbedArgs embed;
  embed.tokens = 2;
  embed.out = rows(2, 8);
  expect(&OpTable::embed, "embed", {.tokens = 2, .out = 8}, embed);
  NormArgs norm;
  norm.x = heads(2, 3);
  expect(&OpTable::norm, "norm", {.tokens = 2, .in = 12, .out = 12}, norm);
  ActivateArgs activate;
  activate.gate = rows(2, 8);
  expect(&OpTable::activate, "activate", {.tokens = 2, .in = 8, .out = 8}, activate);
  activate.up = rows(2, 8);
  expect(&OpTable::activate, "activate", {.tokens = 2, .in = 16, .out = 8}, activate);
  const OpShape shape{.tokens = 2, .in = 8, .out = 8};
  AddArgs add;
  add.x = rows(2, 8);
  expect(&OpTable::add, "add", shape, add);
  ScaleArgs scale;
  scale.x = rows(2, 8);
  expect(&OpTable::scale, "scale", shape, scale);
  GateArgs gate;
  gate.x = rows(2, 8);
  expect(&OpTable::gate, "gate", shape, gate);
  ClampArgs clamp;
  clamp.x = rows(2, 8);
  expect(&OpTable::clamp, "clamp", shape, clamp);
  CopyRowsArgs copy;
  copy.x = rows(5, 8);
  copy.count = 2;
  expect(&OpTable::copy_rows, "copy_rows", shape, copy);
  AddRowsArgs add_rows;
  add_rows.x = rows(5, 8);
  add_rows.y = rows(2, 8);
  expect(&OpTable::add_rows, "add_rows", shape, add_rows);
}

TEST_F(RecordedShapes, OfProducts) {
  const Matrix narrow(6, 8);
  const Matrix wide(6, 10);
  const MatmulOutput outputs[]{{&narrow, rows(2, 8), {}}, {&wide, rows(2, 10), {}}};
  MatmulArgs matmul;
  matmul.outputs = outputs;
  expect(&OpTable::matmul, "matmul", {.tokens = 2, .in = 6, .out = 18}, matmul);
  RouteArgs route;
  route.logits = rows(2, 16);
  route.k = 4;
  expect(&OpTable::route, "route", {.tokens = 2, .in = 16, .out = 4}, route);
  ExpertsArgs experts;
  experts.x = rows(2, 8);
  experts.k = 2;
  experts.intermediate = 10;
  expect(&OpTable::experts, "experts", {.tokens = 2, .in = 8, .out = 20}, experts);
  ArgmaxArgs argmax;
  argmax.logits = rows(2, 20);
  expect(&OpTable::argmax, "argmax", {.tokens = 2, .in = 20}, argmax);
  SampleArgs sample;
  sample.logits = rows(2, 20);
  expect(&OpTable::sample, "sample", {.tokens = 2, .in = 20}, sample);
}

TEST_F(RecordedShapes, OfAttention) {
  RopeAndWriteArgs rope;
  rope.q.x = heads(2, 4);
  rope.k.x = rope.write.k = rope.write.v = heads(2, 1);
  expect(&OpTable::rope, "rope", {.tokens = 2, .in = 16, .out = 16}, rope.q);
  expect(&OpTable::kv_write, "kv_write", {.tokens = 2, .in = 8}, rope.write);
  expect(&OpTable::rope_and_write, "rope_and_write", {.tokens = 2, .in = 24, .out = 16}, rope);
  const std::vector<SequenceSpan> spans{{0, 1, 300, nullptr}, {1, 1, 20, nullptr}};
  AttentionArgs attention;
  attention.q = heads(2, 4);
  attention.sequences = spans;
  expect(&OpTable::attention, "attention", {.tokens = 2, .in = 16, .out = 16, .keys = 301},
         attention);
  expect(&OpTable::rope_write_attend, "rope_write_attend",
         {.tokens = 2, .in = 24, .out = 16, .keys = 301}, rope, attention);
}

}  // namespace
}  // namespace bl::test
