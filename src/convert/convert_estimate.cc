#include "convert/convert_estimate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/seconds_since.h"
#include "convert/block_model.h"
#include "convert/measure_model.h"
#include "convert/output_quality.h"
#include "convert/rounding.h"
#include "model/dense_gather.h"

namespace bl {
namespace {

// The roundings of each linear that measure_model() makes.
constexpr double kMeasuredRoundings = std::size(kMeasuredWidths) + std::size(kOtherGroupSizes);
// The curves of a linear in measurement.json, each with in / 32 numbers.
constexpr double kCurves = std::size(kMeasuredWidths) * (1 + std::size(kOtherGroupSizes));
constexpr double kNumberBytes = 22.0;    // of one of them as text
constexpr std::uint64_t kMatrices = 10;  // F32 copies of a linear that rounding holds at most

// What this machine does in a second.
struct Speed {
  double flops = 0.0;    // of products
  double weights = 0.0;  // rounded, beside the products of rounding
};

Tensor ramp_matrix(std::int64_t rows, std::int64_t columns) {
  Tensor matrix = zero_matrix(rows, columns);
  float* values = matrix.view().as<float>();
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    values[i] = static_cast<float>(i * 37 % 101) / 101.0f - 0.5f;
  }
  return matrix;
}

Speed trial(Backend& backend) {
  // A card needs more work before it shows what it can do.
  const bool host = backend.reads_host_memory();
  const std::int64_t in = 256, out = host ? 1024 : 8192, side = host ? 768 : 4096;
  Products products(backend);
  const Tensor a = products.from_host(ramp_matrix(side, side).view());
  const Tensor sum = products.zeros(side, side);
  products.add(sum.view(), a.view(), a.view());  // the first one also takes memory
  backend.synchronize();
  Speed speed;
  double seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {  // the fastest, which other programs have disturbed least
    const auto begin = std::chrono::steady_clock::now();
    products.add(sum.view(), a.view(), a.view());
    backend.synchronize();
    seconds = std::min(seconds, seconds_since(begin));
  }
  speed.flops = 2.0 * std::pow(static_cast<double>(side), 3) / std::max(seconds, 1e-9);
  const Tensor wanted = products.from_host(ramp_matrix(in, out).view());
  const Tensor diagonal = zero_matrix(in, in);
  for (std::int64_t i = 0; i < in; ++i) {
    diagonal.view().row<float>(i)[i] = 1.0f + static_cast<float>(in - i);
  }
  const Tensor h = products.from_host(diagonal.view());
  const OrderedHessian hessian = order_hessian(products, h.view(), 1, 0.01);
  Rounding rounding(products, hessian, wanted.view());
  const GroupList groups = uniform_groups(4, 64, in);
  if (!host) rounding.run(groups, 0);  // loads the kernels
  const auto start = std::chrono::steady_clock::now();
  rounding.run(groups, 0);
  speed.weights = static_cast<double>(in * out) / std::max(seconds_since(start), 1e-9);
  return speed;
}

struct Sizes {
  double weights = 0.0;      // of the linears of the blocks
  double squares = 0.0;      // Σ in² · out
  double hessians = 0.0;     // Σ in²
  std::uint64_t slots = 0;   // Σ in
  std::uint64_t matrix = 0;  // the largest in · out of a block's linear
  std::uint64_t side = 0;    // the largest `in`
  double head = 0.0;         // hidden · vocabulary
};

Sizes sizes_of(std::span<const PlannedMatrix> linears) {
  Sizes sizes;
  for (const PlannedMatrix& linear : linears.first(linears.size() - 1)) {
    const auto in = static_cast<double>(linear.in), out = static_cast<double>(linear.out);
    sizes.weights += in * out;
    sizes.squares += in * in * out;
    sizes.hessians += in * in;
    sizes.slots += static_cast<std::uint64_t>(linear.in);
    sizes.matrix = std::max(sizes.matrix, static_cast<std::uint64_t>(linear.in * linear.out));
    sizes.side = std::max(sizes.side, static_cast<std::uint64_t>(linear.in));
  }
  sizes.head = static_cast<double>(linears.back().in) * static_cast<double>(linears.back().out);
  return sizes;
}

// The weights of a block as the backend has them, and copies of those that the files hold in
// another order than [out, in] by itself.
std::uint64_t bytes_of_block(const LoadPlan& plan, std::int32_t layer) {
  const LoadRange range = LoadRange::block(layer);
  std::uint64_t bytes = plan.totals(range).packed;
  for (const LoadTask& task : plan.tasks) {
    const auto* work = std::get_if<MatrixWork>(&task.work);
    if (work == nullptr || !range.contains(task.target)) continue;
    const auto* dense = std::get_if<DenseMatrix>(&work->matrix);
    if (dense != nullptr && gathers_copy(*dense, work->rows)) bytes += task.stored;
  }
  return bytes;
}

std::uint64_t memory_of(const EstimateArgs& args, const Sizes& sizes) {
  const auto hidden = static_cast<std::uint64_t>(args.loader.spec().hidden);
  const auto tokens = static_cast<std::uint64_t>(args.tokens);
  const auto blocks = args.loader.spec().blocks.size();
  std::uint64_t block = 0;  // of weights
  for (std::size_t i = 0; i < blocks; ++i) {
    block = std::max(block, bytes_of_block(args.loader.load_plan(), static_cast<std::int32_t>(i)));
  }
  // One copy as F32 to round, and one to compute with, of weights of two bytes or more.
  if (args.may_fold) block *= 5;
  const std::uint64_t ends = args.loader.load_plan().totals(kEnds).packed;
  const std::uint64_t rounding = 4 * (kMatrices * sizes.matrix + 4 * sizes.side * sizes.side);
  const std::uint64_t variants =
      (args.linears.size() - 1) * static_cast<std::uint64_t>(args.sensitivity_tokens) * 4 * hidden;
  // A card has the matrices in its own memory, the host only what is loaded and packed.
  if (!args.backend.reads_host_memory()) {
    return tokens * 8 * (hidden + sizes.side) + 2 * block + 2 * ends + variants;
  }
  const auto head = static_cast<std::uint64_t>(sizes.head);
  const std::uint64_t measuring = static_cast<std::uint64_t>(args.measured_tokens) * 4 * hidden +
                                  variants + block + rounding + ends;
  const auto& specs = args.loader.spec().blocks;
  const std::uint64_t entries =
      std::any_of(specs.begin(), specs.end(), needs_replay) ? tokens * 8 * hidden : 0;
  // Both paths, and the inputs of the next linear on both.
  const std::uint64_t states = tokens * 8 * hidden;
  const std::uint64_t quantizing =
      states + entries + tokens * 8 * sizes.side + block + rounding + ends;
  const std::uint64_t heading = states + 4 * kMatrices * head + ends;
  return std::max({measuring, quantizing, heading});
}

}  // namespace

ConvertEstimate estimate_conversion(const EstimateArgs& args) {
  const Sizes sizes = sizes_of(args.linears);
  const Speed speed = trial(args.backend);
  const auto linears = static_cast<double>(args.linears.size() - 1);
  const double rounding = sizes.weights / speed.weights + sizes.squares / speed.flops;
  // Passes of tokens through all blocks, with half of a matrix of statistics for each input.
  const auto pass = [&](double tokens, double passes) {
    return tokens * 2.0 * passes * (sizes.weights + 0.5 * sizes.hessians) / speed.flops;
  };
  ConvertEstimate estimate;
  // A variant runs from its own block to the end: through half of the blocks on average.
  const double variants = linears * static_cast<double>(args.sensitivity_tokens) *
                          (sizes.weights + sizes.head) / speed.flops;
  estimate.measure_seconds = kMeasuredRoundings * rounding +
                             pass(static_cast<double>(args.measured_tokens), 1.0) + variants;
  // Each sweep goes over a linear as rounding does. There are two paths; correlating inputs with
  // wanted outputs takes about as much as the statistics of one.
  const double head = sizes.head / speed.weights +
                      static_cast<double>(args.linears.back().in) * sizes.head / speed.flops;
  estimate.rate_seconds = (1.0 + args.sweeps) * (rounding + head) +
                          pass(static_cast<double>(args.tokens), 2.0) +
                          2.0 * 2.0 * kComparedPositions * sizes.head / speed.flops;
  estimate.memory = memory_of(args, sizes);
  estimate.device_memory = device_work_bytes(args.backend, args.device);
  estimate.measurement_bytes =
      static_cast<std::uint64_t>(static_cast<double>(sizes.slots) / 32.0 * kCurves * kNumberBytes);
  return estimate;
}

}  // namespace bl
