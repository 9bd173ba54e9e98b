#include "convert/device_plan.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/terminal.h"
#include "convert/block_model.h"
#include "model/whole_sequences.h"

namespace bl {
namespace {

std::uint64_t matrix_bytes(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(columns) * sizeof(float);
}

// The matrices that are in memory while one linear is quantized (quantize_block.cc).
class LinearBytes {
 public:
  LinearBytes(const Backend& backend, const DeviceSizes& sizes, std::int64_t in, std::int64_t out)
      : square_(matrix_bytes(in, in)),
        matrix_(matrix_bytes(in, out)),
        // A linear with an input of its own and fewer outputs needs no sums over two inputs.
        mixed_(in != sizes.hidden && out < in ? 0 : 2 * square_),
        rows_(matrix_bytes(sizes.row_tokens, 3 * in + 3 * out)),
        own_(backend.fitting_bytes(
            {.in = in,
             .out = out,
             .group = sizes.group_slots < 0 ? in : std::min(in, sizes.group_slots),
             .sweeps = sizes.sweeps})) {}

  std::uint64_t largest() const {
    return std::max({statistics(), factoring(), correcting(), rounding()});
  }
  // Without held-out rows and corrections: of the head, and while measuring.
  std::uint64_t measuring() const {
    const std::uint64_t round = own_.round;
    return std::max<std::uint64_t>(own_.factor, 2 * square_ + matrix_ + std::max(matrix_, round));
  }
  // The inputs and outputs of one row of calibration, as they are and as they are to be; an
  // expert's tokens come in pieces of that length (expert_pass.cc).
  std::uint64_t rows() const { return rows_; }

 private:
  // Σ xᵀx, and either Σ xᵀx' or Σ xᵀy, each for rows that are fitted and for rows held out.
  std::uint64_t statistics() const { return 2 * square_ + std::max(mixed_, 2 * matrix_) + rows_; }
  std::uint64_t factoring() const {
    return 2 * square_ + std::max(mixed_, 2 * matrix_) + own_.factor;
  }
  // H, Uᵀ, Σ xᵀx held out, and H of these in the order of slots or U; both Σ xᵀy; the weights, H
  // times them, half of the change, and the change. Σ xᵀx' takes the weights as they are loaded,
  // too.
  std::uint64_t correcting() const {
    return 4 * square_ + 6 * matrix_ + (mixed_ > 0 ? mixed_ + matrix_ : 0);
  }
  // H, Uᵀ, the sums that other readers still need, the wanted weights.
  std::uint64_t rounding() const { return 3 * square_ + mixed_ + matrix_ + own_.round; }

  std::uint64_t square_;
  std::uint64_t matrix_;
  std::uint64_t mixed_;
  std::uint64_t rows_;
  Backend::FittingBytes own_;
};

// Measuring holds the sums of all inputs of a block at once: those that read the residual stream
// (attention, its output, feed-forward) have its width at most, others come once.
std::uint64_t measured_sums(const DeviceSizes& sizes) {
  std::map<std::int64_t, std::uint64_t> squares;
  for (const PlannedMatrix& linear : sizes.linears) {
    squares[linear.in] = (linear.in == sizes.hidden ? 3 : 1) * matrix_bytes(linear.in, linear.in);
  }
  std::uint64_t sum = 0;
  for (const auto& [in, bytes] : squares) sum += bytes;
  return sum;
}

std::int64_t longest_row(const Calibration& calibration) {
  std::int64_t longest = 0;
  for (const auto* rows : {&calibration.held_out, &calibration.rows}) {
    for (const auto& row : *rows) longest = std::max<std::int64_t>(longest, std::ssize(row));
  }
  return longest;
}

}  // namespace

std::uint64_t device_work_bytes(Backend& backend, const DeviceSizes& sizes) {
  if (backend.reads_host_memory()) return 0;
  std::uint64_t linear = 0, measured = 0, rows = 0;
  for (const PlannedMatrix& matrix : sizes.linears) {
    const LinearBytes bytes(backend, sizes, matrix.in, matrix.out);
    linear = std::max(linear, bytes.largest());
    measured = std::max(measured, bytes.measuring());
    rows = std::max(rows, bytes.rows());
  }
  // The quantized linears of a block, at 8 bits each, beside the original ones.
  const std::uint64_t block = sizes.block + sizes.block / 2;
  // Logits on both paths and as softmax.
  std::uint64_t head = 3 * matrix_bytes(kLogitRows, sizes.head_out);
  if (sizes.head_out > 0) {
    const LinearBytes bytes(backend, sizes, sizes.hidden, sizes.head_out);
    head += bytes.measuring();
  }
  const std::uint64_t phases =
      std::max({block + linear, block + measured + measured_sums(sizes) + rows, sizes.ends + head});
  return phases + sizes.scratch + backend.own_bytes() + backend.loading_bytes() +
         backend.driver_bytes();
}

DeviceSizes device_sizes(const ConversionJob& job, const ModelLoader& loader,
                         std::span<const PlannedMatrix> linears) {
  DeviceSizes sizes;
  sizes.linears = linears;
  sizes.hidden = loader.spec().hidden;
  sizes.row_tokens = longest_row(job.calibration);
  sizes.sweeps = job.quantize.sweeps > 0;
  LoadTotals widest;
  for (std::size_t i = 0; i < loader.spec().blocks.size(); ++i) {
    const LoadTotals totals =
        loader.load_plan().totals(LoadRange::block(static_cast<std::int32_t>(i)));
    sizes.block = std::max<std::uint64_t>(sizes.block, totals.packed);
    widest.max_in = std::max(widest.max_in, totals.max_in);
    widest.max_slots = std::max(widest.max_slots, totals.max_slots);
    widest.max_out = std::max(widest.max_out, totals.max_out);
  }
  const LoadTotals ends = loader.load_plan().totals(kEnds);
  sizes.ends = ends.packed;
  const WorkShape shape{loader.spec(), widest.max_in, widest.max_slots, widest.max_out};
  const WorkShape of_ends{loader.spec(), ends.max_in, ends.max_slots, ends.max_out};
  const std::vector<KvLayout> layouts = loader.kv_layouts(pass_cache(job.backend));
  sizes.scratch = model_work_bytes(shape, job.backend, sizes.row_tokens, 0) +
                  block_kv_bytes(layouts, pages_for(sizes.row_tokens)) +
                  model_work_bytes(of_ends, job.backend, sizes.row_tokens, kLogitRows);
  return sizes;
}

void plan_device(Backend& backend, const DeviceSizes& sizes, std::uint64_t most) {
  FittingOps* const ops = backend.fitting();
  if (ops == nullptr) return;
  const std::uint64_t work = device_work_bytes(backend, sizes);
  const std::uint64_t free = backend.free_memory();
  const std::uint64_t usable = most > 0 ? std::min(most, free) : free;
  if (work > usable && usable < free) {
    fail(ErrorCode::kOutOfMemory,
         "the conversion needs about {} of the memory of {}, and --device-memory allows {}; allow "
         "more, or use --backend cpu",
         human_bytes(static_cast<double>(work)), backend.name(),
         human_bytes(static_cast<double>(usable)));
  }
  if (work > usable) {
    fail(
        ErrorCode::kOutOfMemory,
        "the conversion needs about {} of the memory of {}, and {} are free; use a larger card, or "
        "--backend cpu",
        human_bytes(static_cast<double>(work)), backend.name(),
        human_bytes(static_cast<double>(free)));
  }
  ops->set_row_room(usable - work);
}

}  // namespace bl
