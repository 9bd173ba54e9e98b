#include "backend/cpu/products.h"

#include <algorithm>
#include <array>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/pack_plan.h"
#include "backend/cpu/piece_queue.h"
#include "backend/cpu/rows.h"
#include "base/check.h"

namespace bl::cpu {
namespace {

constexpr std::size_t kMaxPass = 32;            // products per parallel region
constexpr std::int64_t kBudgetRows = 512;       // rows of activations held at once
constexpr std::int64_t kMinBudgetRows = 64;     // so that padded layouts fit even for one row
constexpr std::int64_t kSerialTerms = 1 << 15;  // multiplications up to which one thread is faster
// Activations up to which one thread quantizes faster.
constexpr std::int64_t kSerialElements = 8192;
constexpr std::int64_t kItemBytes = 24 << 10;  // bytes of weights in a piece of work, for one row
constexpr std::int64_t kItemsPerThread = 6;    // minimum number of pieces, if there is enough work
constexpr std::int64_t kManyRows = 8;
constexpr std::int64_t kDensePanelBytes = 768 << 10;  // bytes of x that stay in the L2 cache

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

int thread_count(const ExecContext& ctx) {
  return ctx.threads == nullptr ? 1 : ctx.threads->threads();
}

std::size_t activation_bytes(std::int64_t rows, std::int64_t slots, std::int64_t segments) {
  return arena_bytes(DType::kI8, rows * slots * 2) + 2 * arena_bytes(DType::kF32, rows * segments);
}

std::size_t activation_budget(std::int64_t rows, std::int64_t in) {
  const std::int64_t units = ceil_div(in, kUnitSlots);
  return activation_bytes(std::clamp(rows, kMinBudgetRows, kBudgetRows), units * kUnitSlots, units);
}

// A product in progress: its quantized rows, and how it is cut into pieces of work.
struct Job {
  const Product* product = nullptr;
  std::int64_t first_row = 0;  // in the product's x
  std::int64_t rows = 0;
  ActivationView activations;  // only for quantized weights
  std::int64_t panel_rows = 0;
  std::int64_t panels = 0;
  std::int64_t step = 0;   // columns (dense) or tiles (quantized) per piece
  std::int64_t count = 0;  // total number of columns or tiles
  std::int64_t pieces() const { return panels * ceil_div(count, step); }
};

struct Pass {
  std::array<Job, kMaxPass> jobs;
  std::size_t size = 0;
  std::size_t bytes = 0;  // bytes of activations
};

bool shares_activations(const Job& job, const Product& product) {
  const QuantizedWeights* a = job.product->weight->quantized();
  const QuantizedWeights* b = product.weight->quantized();
  return a != nullptr && a->layout == b->layout && job.product->x.data == product.x.data &&
         job.product->x.row_stride == product.x.row_stride && job.rows == product.x.rows();
}

void quantize(ExecContext& ctx, Job& job) {
  const ActivationLayout& layout = *job.product->weight->quantized()->layout;
  const TensorView& x = job.product->x;
  QuantizeArgs args{.x = x.row<float>(job.first_row),
                    .x_stride = x.row_stride,
                    .gather = layout.gather.data(),
                    .units = layout.units.data(),
                    .segments = layout.segments(),
                    .row_pitch = job.rows};
  args.codes = ctx.scratch->take(DType::kI8, {job.rows, layout.slots() * 2}).as<std::int16_t>();
  args.scales = ctx.scratch->take_f32({job.rows, args.segments}).as<float>();
  args.sums = ctx.scratch->take(DType::kI32, {job.rows, args.segments}).as<std::int32_t>();
  job.activations = {.codes = args.codes,
                     .row_pitch = args.row_pitch,
                     .scales = args.scales,
                     .sums = args.sums,
                     .segments = args.segments,
                     .rows = job.rows};
  const auto kernel = kernels_of(ctx).matmul.quantize;
  if (ctx.threads == nullptr || job.rows * layout.slots() <= kSerialElements) {
    kernel(args, 0, job.rows);
    return;
  }
  share_rows(ctx, job.rows, [&](std::int64_t row) { kernel(args, row, row + 1); });
}

// Chooses pieces that are small enough to balance the threads and large enough to read memory in
// long runs.
void cut(const ExecContext& ctx, Job& job) {
  const MatmulKernels& kernels = kernels_of(ctx).matmul;
  const CpuMatrix& weight = *job.product->weight;
  std::int64_t unit = 0;        // columns or tiles per piece should be multiples of it
  std::int64_t unit_bytes = 0;  // bytes of weights in a unit
  if (const QuantizedWeights* quantized = weight.quantized()) {
    unit = job.rows == 1 ? kernels.row_tile_step : kernels.tile_step;
    unit_bytes = unit * static_cast<std::int64_t>(quantized->tile_bytes);
    job.count = tiles_of(weight.out());
    job.panels = ceil_div(job.rows, kMaxPanelRows);
  } else {
    unit = kernels.column_step;
    unit_bytes = unit * weight.in() * (weight.dense()->type == DenseType::kFloat ? 4 : 2);
    job.count = weight.out();
    const std::int64_t rows = std::max<std::int64_t>(16, kDensePanelBytes / (4 * weight.in()));
    job.panels = ceil_div(job.rows, rows);
  }
  // Equal panels, in multiples of 12 rows, which suits the register blocks of every instruction
  // set.
  job.panel_rows = std::min(job.rows, ceil_div(ceil_div(job.rows, job.panels), 12) * 12);
  job.panels = ceil_div(job.rows, job.panel_rows);
  const std::int64_t units = ceil_div(job.count, unit);
  // The longer a piece takes, the longer the threads may wait for the last one.
  const std::int64_t each = job.rows < kManyRows ? kItemsPerThread : 4 * kItemsPerThread;
  const std::int64_t wanted = ceil_div(each * thread_count(ctx), job.panels);
  const std::int64_t by_balance = std::max<std::int64_t>(1, units / wanted);
  const std::int64_t by_bytes =
      std::max<std::int64_t>(1, kItemBytes / std::max<std::int64_t>(1, unit_bytes));
  job.step = unit * std::max<std::int64_t>(1, std::min(by_balance, std::max(by_bytes, units / 64)));
}

OutputView output_of(const Job& job, std::int64_t row) {
  const Product& product = *job.product;
  return {.out = product.out.row<float>(job.first_row + row),
          .stride = product.out.row_stride,
          .columns = product.weight->out(),
          .bias = product.bias,
          .multiplier = product.multiplier,
          .accumulate = product.accumulate};
}

void run_piece(const MatmulKernels& kernels, const Job& job, std::int64_t piece, float* panel) {
  const std::int64_t cuts = ceil_div(job.count, job.step);
  const std::int64_t row = piece / cuts * job.panel_rows;
  const std::int64_t rows = std::min(job.panel_rows, job.rows - row);
  const std::int64_t begin = piece % cuts * job.step;
  const std::int64_t end = std::min(job.count, begin + job.step);
  const Product& product = *job.product;
  const OutputView out = output_of(job, row);
  if (const QuantizedWeights* quantized = product.weight->quantized()) {
    ActivationView x = job.activations;
    x.codes += row * kUnitSlots;
    x.scales += row * x.segments;
    x.sums += row * x.segments;
    x.rows = rows;
    kernels.quantized_product(quantized->view(), x, out, begin, end);
    return;
  }
  const FloatRows x{product.x.row<float>(job.first_row + row), product.x.row_stride, rows};
  kernels.matmul_dense(product.weight->dense_view(), x, out, {begin, end, panel});
}

std::int64_t panel_floats(std::int64_t in) { return kDensePanelColumns * ceil_div(in, 16) * 16; }

// Whether one thread finishes before it could wake another, as with the narrow matrices of
// adapters.
bool is_small(const Pass& pass) {
  std::int64_t terms = 0;
  for (std::size_t j = 0; j < pass.size; ++j) {
    const Job& job = pass.jobs[j];
    terms += job.rows * job.product->weight->in() * job.product->weight->out();
  }
  return terms <= kSerialTerms;
}

void run_pass(ExecContext& ctx, Pass& pass) {
  std::int64_t pieces = 0;
  std::int64_t widest = 0;  // input width of the widest dense matrix
  for (std::size_t j = 0; j < pass.size; ++j) {
    cut(ctx, pass.jobs[j]);
    pieces += pass.jobs[j].pieces();
    const CpuMatrix& weight = *pass.jobs[j].product->weight;
    if (weight.dense() != nullptr) widest = std::max(widest, weight.in());
  }
  const std::int64_t stride = panel_floats(widest);
  float* panels = nullptr;
  if (widest > 0) panels = ctx.scratch->take_f32({thread_count(ctx), stride}).as<float>();
  const MatmulKernels& kernels = kernels_of(ctx).matmul;
  PieceQueue queue(pieces, thread_count(ctx));
  const auto work = [&](int thread) {
    float* panel = panels + thread * stride;
    std::size_t job = 0;
    std::int64_t before = 0;  // number of pieces of the jobs before this one
    for (std::int64_t piece = 0; (piece = queue.take(thread)) >= 0;) {
      if (piece < before) job = 0, before = 0;
      while (piece - before >= pass.jobs[job].pieces()) before += pass.jobs[job++].pieces();
      run_piece(kernels, pass.jobs[job], piece - before, panel);
    }
  };
  if (ctx.threads == nullptr || pieces == 1 || is_small(pass)) {
    work(0);
  } else {
    ctx.threads->run_any(work);
  }
}

// Adds as many products to the pass as fit, and returns how many are complete. A product with more
// rows than fit is added for some of its rows only; `row` is where it continues, and is advanced.
std::size_t fill(ExecContext& ctx, std::span<const Product> products, Pass& pass,
                 std::int64_t& row) {
  std::size_t taken = 0;
  for (; taken < products.size() && pass.size < kMaxPass; ++taken) {
    const Product& product = products[taken];
    const std::int64_t rows = product.x.rows() - row;
    if (rows == 0) continue;
    Job job;
    job.product = &product;
    job.first_row = row;
    job.rows = rows;
    if (const QuantizedWeights* quantized = product.weight->quantized()) {
      const ActivationLayout& layout = *quantized->layout;
      const auto shared = std::find_if(
          pass.jobs.begin(), pass.jobs.begin() + static_cast<std::ptrdiff_t>(pass.size),
          [&](const Job& other) {
            return row == 0 && other.first_row == 0 && shares_activations(other, product);
          });
      if (shared != pass.jobs.begin() + static_cast<std::ptrdiff_t>(pass.size)) {
        job.activations = shared->activations;
      } else {
        const std::size_t budget = activation_budget(rows, product.weight->in());
        std::size_t bytes = activation_bytes(rows, layout.slots(), layout.segments());
        if (pass.size > 0 && pass.bytes + bytes > budget) break;
        while (bytes > budget) {
          job.rows = (job.rows + 1) / 2;
          bytes = activation_bytes(job.rows, layout.slots(), layout.segments());
        }
        pass.bytes += bytes;
        quantize(ctx, job);
      }
    }
    pass.jobs[pass.size++] = job;
    if (job.rows < rows) {
      row += job.rows;
      return taken;
    }
    row = 0;
  }
  return taken;
}

}  // namespace

void run_products(ExecContext& ctx, std::span<const Product> products) {
  std::int64_t row = 0;
  while (!products.empty()) {
    ArenaScope scope(*ctx.scratch);
    Pass pass;
    products = products.subspan(fill(ctx, products, pass, row));
    if (pass.size > 0) run_pass(ctx, pass);
  }
}

std::size_t product_scratch_bytes(std::int64_t rows, std::int64_t in, int threads) {
  return activation_budget(rows, in) + arena_bytes(DType::kF32, threads * panel_floats(in));
}

}  // namespace bl::cpu
