#include "nn/lora.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "ops/op_table.h"

namespace bl {
namespace {

// How many products with A are made in one launch.
constexpr std::size_t kMostTogether = 4;
// Up to this rank, all rows of a step fit the scratch at once; fewer do at higher ranks.
constexpr std::int64_t kPlannedRank = 64;

std::int64_t room_elements(std::int64_t tokens) {
  return std::max(tokens * kPlannedRank, kMaxLoraRank);
}

// Number of rows of a step whose x · A fits the scratch at this rank.
std::int64_t rows_at_once(std::int64_t step_rows, std::int64_t rank) {
  return std::max<std::int64_t>(1, room_elements(step_rows) / rank);
}

struct Job {
  const LoraDelta* delta = nullptr;
  TensorView out;  // [rows of the run, columns of the delta]
  float scale = 1.0f;
};

// out += scale · t · up. On a device, t is scaled first, because its best F32 kernels have no
// multiplier. On a host the multiplier is free.
void add_product(ExecContext& ctx, const TensorView& t, const PackedMatrix& up, float scale,
                 const TensorView& out) {
  const bool host = ctx.threads != nullptr;
  if (!host) ctx.ops->scale(ctx, {.x = t, .multiplier = scale});
  const MatmulOutput output{&up, out, {}};
  ctx.ops->matmul(ctx, {.x = t,
                        .outputs = {&output, 1},
                        .epilogue = {.multiplier = host ? scale : 1.0f, .accumulate = true}});
}

void run_jobs(ExecContext& ctx, const TensorView& x, std::span<const Job> jobs) {
  std::int64_t rank = 1;
  for (const Job& job : jobs) rank = std::max(rank, job.delta->down->out());
  const std::int64_t step = rows_at_once(ctx.adapters->rows, rank);
  for (std::int64_t first = 0; first < x.rows(); first += step) {
    const std::int64_t count = std::min(step, x.rows() - first);
    ArenaScope scope(*ctx.scratch);
    std::array<MatmulOutput, kMostTogether> outputs;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const PackedMatrix& down = *jobs[i].delta->down;
      outputs[i] = {&down, ctx.scratch->take_f32({count, down.out()}), {}};
    }
    ctx.ops->matmul(
        ctx, {.x = slice_rows(x, first, count), .outputs = std::span(outputs.data(), jobs.size())});
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      add_product(ctx, outputs[i].out, *jobs[i].delta->up, jobs[i].scale,
                  slice_rows(jobs[i].out, first, count));
    }
  }
}

// The adapters of a run of rows that replace something, and the share that remains of the model's
// own.
template <class Of>
struct Replacers {
  using Found = decltype(std::declval<Of>()(std::declval<const LoraAdapter&>()));
  Replacers(const AdapterMix& mix, const Of& of) {
    for (const WeightedAdapter& one : mix) {
      const Found found = of(*one.adapter);
      if (!found) continue;
      list.emplace_back(found, one.weight);
      left -= one.weight;
    }
  }
  // Whether exactly one adapter replaces everything, so that the model's own result is not needed.
  bool is_one() const { return list.size() == 1 && left == 0.0f; }
  std::vector<std::pair<Found, float>> list;
  float left = 1.0f;
};

// out = multiplier · x · (what replaces the linear's weights).
void replace_outputs(ExecContext& ctx, const TensorView& x, const LinearOutput& output,
                     const AdapterMix& mix, float multiplier) {
  const Replacers replacers(
      mix, [&](const LoraAdapter& adapter) { return adapter.replacement(*output.linear); });
  if (replacers.list.empty()) return;
  BL_CHECK(!output.linear->has_bias());
  if (!replacers.is_one()) ctx.ops->scale(ctx, {.x = output.out, .multiplier = replacers.left});
  for (const auto& [matrix, weight] : replacers.list) {
    const MatmulOutput product{matrix, output.out, {}};
    ctx.ops->matmul(
        ctx, {.x = x,
              .outputs = {&product, 1},
              .epilogue = {.multiplier = multiplier * weight, .accumulate = !replacers.is_one()}});
  }
}

// Replaces embedded rows in the same way.
void replace_rows(ExecContext& ctx, const std::int32_t* ids, const TensorView& out,
                  const AdapterMix& mix, float multiplier) {
  const Replacers replacers(
      mix, [](const LoraAdapter& adapter) { return adapter.table().empty() ? nullptr : &adapter; });
  if (replacers.list.empty()) return;
  if (!replacers.is_one()) ctx.ops->scale(ctx, {.x = out, .multiplier = replacers.left});
  for (const auto& [adapter, weight] : replacers.list) {
    ctx.ops->embed(ctx, {.ids = ids,
                         .tokens = out.rows(),
                         .table = adapter->table(),
                         .out = out,
                         .multiplier = multiplier * weight,
                         .accumulate = !replacers.is_one()});
  }
}

}  // namespace

void LoraAdapter::replace(std::int32_t linear, std::shared_ptr<const PackedMatrix> matrix) {
  replacements_[linear] = std::move(matrix);
  linears_.insert(linear);
}

const PackedMatrix* LoraAdapter::replacement(const Linear& linear) const {
  const auto found = replacements_.find(linear.id());
  return found == replacements_.end() ? nullptr : found->second.get();
}

void LoraAdapter::add(std::int32_t linear, LoraDelta delta) {
  BL_CHECK(linear >= 0 && delta.down->out() == delta.up->in() && delta.down->out() <= kMaxLoraRank);
  const auto at = static_cast<std::size_t>(linear);
  if (deltas_.size() <= at) deltas_.resize(at + 1);
  deltas_[at].push_back(std::move(delta));
  linears_.insert(linear);
}

bool LoraAdapter::touches(std::int32_t first, std::int32_t end) const {
  const auto found = linears_.lower_bound(first);
  return found != linears_.end() && *found < end;
}

std::span<const LoraDelta> LoraAdapter::of(const Linear& linear) const {
  const auto at = static_cast<std::size_t>(linear.id());
  if (linear.id() < 0 || at >= deltas_.size()) return {};
  return deltas_[at];
}

void StepAdapters::append(const AdapterMix* mix, std::int64_t count) {
  const std::int64_t first = rows;
  rows += count;
  if (mix == nullptr || mix->empty() || count == 0) return;
  if (!runs.empty() && runs.back().first + runs.back().rows == first && *runs.back().mix == *mix) {
    runs.back().rows += count;
    return;
  }
  runs.push_back({first, count, mix});
}

void add_lora(ExecContext& ctx, const TensorView& x, std::span<const LinearOutput> outputs,
              float multiplier) {
  if (ctx.adapters == nullptr) return;
  BL_CHECK(x.rows() == ctx.adapters->rows);
  for (const AdapterRows& run : ctx.adapters->runs) {
    const TensorView rows = slice_rows(x, run.first, run.rows);
    std::array<Job, kMostTogether> jobs;
    std::size_t count = 0;
    for (const LinearOutput& output : outputs) {
      const TensorView out = slice_rows(output.out, run.first, run.rows);
      replace_outputs(ctx, rows, {output.linear, out}, *run.mix, multiplier);
      for (const WeightedAdapter& one : *run.mix) {
        for (const LoraDelta& delta : one.adapter->of(*output.linear)) {
          jobs[count++] = {&delta, slice_columns(out, delta.first_column, delta.up->out()),
                           multiplier * one.weight * delta.scale};
          if (count < jobs.size()) continue;
          run_jobs(ctx, rows, jobs);
          count = 0;
        }
      }
    }
    if (count > 0) run_jobs(ctx, rows, std::span(jobs.data(), count));
  }
}

void add_lora_embedding(ExecContext& ctx, const std::int32_t* ids, const TensorView& out,
                        float multiplier) {
  if (ctx.adapters == nullptr) return;
  BL_CHECK(out.rows() == ctx.adapters->rows);
  for (const AdapterRows& run : ctx.adapters->runs) {
    replace_rows(ctx, ids + run.first, slice_rows(out, run.first, run.rows), *run.mix, multiplier);
    for (const WeightedAdapter& one : *run.mix) {
      const LoraEmbedding& embedding = one.adapter->embedding();
      if (embedding.up == nullptr) continue;
      const std::int64_t rank = embedding.up->in();
      const std::int64_t step = rows_at_once(out.rows(), rank);
      for (std::int64_t done = 0; done < run.rows; done += step) {
        const std::int64_t count = std::min(step, run.rows - done);
        const std::int64_t first = run.first + done;
        ArenaScope scope(*ctx.scratch);
        const TensorView t = ctx.scratch->take_f32({count, rank});
        ctx.ops->embed(
            ctx, {.ids = ids + first, .tokens = count, .table = embedding.rows.view(), .out = t});
        add_product(ctx, t, *embedding.up, multiplier * one.weight * embedding.scale,
                    slice_rows(out, first, count));
      }
    }
  }
}

std::size_t lora_work_bytes(std::int64_t tokens) {
  return kMostTogether * arena_bytes(DType::kF32, room_elements(tokens));
}

}  // namespace bl
