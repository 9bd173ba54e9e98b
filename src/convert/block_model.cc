#include "convert/block_model.h"

#include <algorithm>

#include "base/check.h"
#include "convert/products.h"

namespace bl {
namespace {

const LoadTask& task_of(const ModelLoader& loader, std::int32_t id) {
  const LoadPlan& plan = loader.load_plan();
  return plan.tasks[static_cast<std::size_t>(plan.linears[static_cast<std::size_t>(id)])];
}

// The weights of a linear as [out, in].
LinearSite site_of(ModelLoader& loader, std::int32_t id) {
  const LoadTask& task = task_of(loader, id);
  const auto& work = std::get<MatrixWork>(task.work);
  LinearSite site{.key = task.key, .id = id, .held = plain_matrix(work)};
  site.weight = site.held.weight.view;
  site.bias = site.held.bias.view;
  return site;
}

}  // namespace

CacheTypes pass_cache(const Backend& backend) {
  return backend.reads_host_memory() ? CacheType::kF32 : CacheType::kF16;
}

bool needs_replay(const BlockSpec& spec) { return spec.parallel || spec.moe.has_value(); }

ModelPart::ModelPart(ModelLoader& loader, Backend& backend, const LoadRange& range,
                     std::size_t number)
    : loader_(loader), backend_(backend), number_(number) {
  Model::Parts parts = loader.load_parts(backend, range);
  const LoadTotals totals = loader.load_plan().totals(range);
  parts.max_in = totals.max_in;
  parts.max_slots = totals.max_slots;
  parts.max_out = totals.max_out;
  model_ = std::make_unique<Model>(backend, std::move(parts));
  model_->visit([&](const std::string&, Linear& linear) {
    if (linear.empty() || !is_quantized(loader, task_of(loader, linear.id()))) return;
    LinearSite site = site_of(loader, linear.id());
    site.packed = &linear.weight();
    linears_.push_back(std::move(site));
  });
  table_ = std::make_unique<CallTable>(backend);
}

ModelPart ModelPart::block(ModelLoader& loader, Backend& backend, std::size_t number) {
  const std::int32_t layer = loader.spec().order[number];
  ModelPart part(loader, backend, LoadRange::block(layer), number);
  part.replays_ = needs_replay(loader.spec().blocks[static_cast<std::size_t>(layer)]);
  return part;
}

ModelPart ModelPart::ends(ModelLoader& loader, Backend& backend) {
  return {loader, backend, kEnds, 0};
}

const LinearSite* ModelPart::linear_of(const PackedMatrix* packed) const {
  const auto site = std::find_if(linears_.begin(), linears_.end(),
                                 [&](const LinearSite& s) { return s.packed == packed; });
  return site != linears_.end() ? &*site : nullptr;
}

std::vector<const LinearSite*> ModelPart::readers_of(const MatmulArgs& args) const {
  std::vector<const LinearSite*> readers;
  for (const MatmulOutput& output : args.outputs) {
    const LinearSite* linear = linear_of(output.weight);
    const bool known = std::find(readers.begin(), readers.end(), linear) != readers.end();
    if (linear != nullptr && !known) readers.push_back(linear);
  }
  return readers;
}

Arena& ModelPart::scratch(std::size_t bytes) {
  if (scratch_.capacity() < bytes) scratch_ = Arena(backend_.allocate(bytes));
  return scratch_;
}

Tensor ModelPart::embed(const Chunk& chunk) {
  const Shape shape{chunk.tokens(), loader_.spec().hidden};
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * sizeof(float);
  Tensor x(backend_.allocate(bytes), DType::kF32, shape);
  Arena& arena = scratch(model_->work_bytes(chunk.tokens(), 0));
  ArenaScope scope(arena);
  ExecContext ctx = backend_.context(arena);
  model_->embed(ctx, chunk.whole.batch, x.view());
  return x;
}

int ModelPart::run_block(const Chunk& chunk, const TensorView& x, const CallPlan& plan) {
  const std::vector<KvLayout> layouts = loader_.kv_layouts(pass_cache(backend_));
  Arena& arena =
      scratch(model_->work_bytes(chunk.tokens(), 0) + block_kv_bytes(layouts, chunk.whole.pages));
  ArenaScope scope(arena);
  const std::vector<PagedKvView> kv = take_block_kv(arena, layouts, chunk.whole.pages);
  ExecContext ctx = backend_.context(arena);
  ctx.ops = table_.get();
  ctx.fusion = Fusion::kNone;
  table_->begin(plan);
  model_->run_block(ctx, chunk.whole.batch, kv, number_, x);
  return table_->calls();
}

void ModelPart::run_head(const Chunk& chunk, const TensorView& x, const CallPlan& plan,
                         const ReadLogits& read) {
  Arena& arena = scratch(model_->work_bytes(chunk.tokens(), kLogitRows));
  StepBatch batch = chunk.whole.batch;
  for (std::int64_t first = 0; first < chunk.tokens(); first += kLogitRows) {
    batch.logit_rows.clear();
    for (std::int64_t r = first; r < std::min(chunk.tokens(), first + kLogitRows); ++r) {
      batch.logit_rows.push_back(static_cast<std::int32_t>(r));
    }
    ArenaScope scope(arena);
    ExecContext ctx = backend_.context(arena);
    ctx.ops = table_.get();
    ctx.fusion = Fusion::kNone;
    table_->begin(plan);
    read(first, model_->logits(ctx, batch, x));
  }
}

}  // namespace bl
