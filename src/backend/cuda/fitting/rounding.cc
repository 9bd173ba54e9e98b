#include "backend/cuda/fitting/rounding.h"

#include <algorithm>

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/fitting/elementwise.h"
#include "backend/cuda/fitting/grid_search.h"
#include "backend/cuda/fitting/product.h"
#include "backend/cuda/fitting/slot_kernels.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

class MatrixRounding {
 public:
  MatrixRounding(FittingDevice& device, const RoundArgs& args)
      : device_(device),
        args_(args),
        in_(args.wanted.rows()),
        out_(args.wanted.columns()),
        groups_(runs_of(args.groups)),
        per_column_(std::holds_alternative<GptqGridRules>(args.rules)),
        work_(device.matrix({in_, out_})),
        values_(device.matrix({in_, out_})),
        codes_(device.take_array<std::uint8_t>(in_ * out_)),
        column_codes_(device.take_array<std::uint8_t>(std::ssize(groups_) * out_)),
        scales_(device.take_array<std::uint16_t>(std::ssize(groups_) * (per_column_ ? out_ : 1))),
        slot_sums_(device.take_array<double>(in_)) {
    BL_CHECK(out_ % 32 == 0 && args.wanted.row_stride == out_);
  }

  RoundResult run() {
    copy(work_.view(), args_.wanted);
    round_all();
    RoundResult result;
    result.slot_errors = sums();
    for (const double error : result.slot_errors) result.error += error;
    if (args_.sweeps > 0) {
      sweep_all();
      row_losses(device_, values_.view(), args_.wanted, work_.view(), slot_sums_.get());
      result.error = 0.0;
      for (const double loss : sums()) result.error += loss;
    }
    if (args_.only_errors) return result;
    download(codes_.get(), in_ * out_, result.codes);
    download(column_codes_.get(), std::ssize(groups_) * out_, result.column_codes);
    download(scales_.get(), std::ssize(groups_) * (per_column_ ? out_ : 1), result.scales);
    return result;
  }

 private:
  SlotMatrices matrices() const {
    return {work_.view().as<float>(), values_.view().as<float>(), codes_.get(), in_, out_};
  }
  static SlotFactors factors_of(const TensorView& view) {
    return {view.as<const float>(), view.row_stride};
  }
  GroupWork work_of(std::size_t group, const TensorView& factors) const {
    return {matrices(), factors_of(factors), grids_of(group)};
  }
  GroupGrids grids_of(std::size_t group) const {
    const auto at = static_cast<std::int64_t>(group);
    return {args_.rules, column_codes_.get() + at * out_,
            scales_.get() + at * (per_column_ ? out_ : 1), groups_[group].bits};
  }
  TensorView rows(std::int64_t first, std::int64_t count) const {
    return slice_rows(work_.view(), first, count);
  }
  void copy(const TensorView& to, const TensorView& from) const {
    const auto bytes = static_cast<std::size_t>(to.shape.elements()) * sizeof(float);
    BL_CUDA_CHECK(
        cudaMemcpyAsync(to.data, from.data, bytes, cudaMemcpyDeviceToDevice, device_.stream()));
  }
  std::vector<double> sums() const {
    std::vector<double> result;
    download(slot_sums_.get(), in_, result);
    return result;
  }
  template <class T>
  void download(const T* from, std::int64_t count, std::vector<T>& to) const {
    to.resize(static_cast<std::size_t>(count));
    device_.download(to.data(), from, to.size() * sizeof(T));
  }

  // Rows of the matrix, which are changed by a step of some slots.
  struct RowRange {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  // work[range] += multiplier · factors[range, slots] · step.
  void add_to_rows(const RowRange& range, const TensorView& factors, const SlotRun& slots,
                   const TensorView& step, float multiplier) {
    if (range.count == 0) return;
    const TensorView own = slice_rows(factors, range.first, range.count);
    add_product(device_, {.out = rows(range.first, range.count),
                          .a = slice_columns(own, slots.first, slots.slots),
                          .b = step,
                          .multiplier = multiplier});
  }

  // GPTQ.
  void round_all() {
    const SearchScratch scratch(device_, out_);
    const Tensor errors = device_.matrix({kRunSlots, out_});
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const GroupRuns& group = groups_[g];
      const GroupWeights weights{rows(group.first, group.slots).as<const float>(),
                                 args_.importance.as<const float>() + group.first, group.slots,
                                 out_};
      search_grids(device_, weights, grids_of(g), scratch);
      for (const SlotRun& run : group.runs) {
        const TensorView own = slice_rows(errors.view(), 0, run.slots);
        round_slots(device_, work_of(g, args_.u_transposed), run, own.as<float>());
        row_dots(device_, own, own, nullptr, slot_sums_.get() + run.first);
        const std::int64_t next = run.first + run.slots;
        add_to_rows({next, in_ - next}, args_.u_transposed, run, own, -1.0f);
      }
    }
  }

  // work = H · (values − wanted), some columns at a time.
  void begin_sweeps() {
    BL_CUDA_CHECK(cudaMemsetAsync(work_.view().data, 0,
                                  static_cast<std::size_t>(in_ * out_) * sizeof(float),
                                  device_.stream()));
    for (std::int64_t first = 0; first < out_; first += kErrorColumns) {
      const std::int64_t columns = std::min(kErrorColumns, out_ - first);
      const Tensor errors = device_.matrix({in_, columns});
      fill_zero(errors.view());
      add_scaled(device_, errors.view(), slice_columns(values_.view(), first, columns), 1.0f);
      add_scaled(device_, errors.view(), slice_columns(args_.wanted, first, columns), -1.0f);
      add_product(
          device_,
          {.out = slice_columns(work_.view(), first, columns), .a = args_.h, .b = errors.view()});
    }
  }

  void fill_zero(const TensorView& to) const {
    const auto bytes = static_cast<std::size_t>(to.shape.elements()) * sizeof(float);
    BL_CUDA_CHECK(cudaMemsetAsync(to.data, 0, bytes, device_.stream()));
  }

  void sweep_all() {
    begin_sweeps();
    const Shape largest{most_slots(args_.groups), out_};
    steps_ = device_.matrix(largest);
    products_ = device_.matrix(largest);
    total_ = device_.matrix(largest);
    changes_ = device_.matrix({kRunSlots, out_});
    const std::shared_ptr<float> row_sums = device_.take_array<float>(in_);
    for (const GroupRuns& group : groups_) {
      sum_group_rows(device_, factors_of(args_.h), group, row_sums.get());
    }
    for (int sweep = 0; sweep < args_.sweeps; ++sweep) {
      for (std::size_t g = 0; g < groups_.size(); ++g) sweep_group(g, row_sums.get());
    }
  }

  // Within the group, residuals follow every change; the rows outside of it get the sum of all.
  void sweep_group(std::size_t g, const float* row_sums) {
    const GroupRuns& group = groups_[g];
    const GroupWork work = work_of(g, args_.h);
    const RowRange inside{group.first, group.slots};
    const SlotRun all{group.first, static_cast<int>(group.slots)};
    const TensorView steps = slice_rows(steps_.view(), 0, group.slots);
    const TensorView products = slice_rows(products_.view(), 0, group.slots);
    const TensorView total = slice_rows(total_.view(), 0, group.slots);
    read_steps(device_, work, group, steps.as<float>());
    fill_zero(products);
    add_product(device_, {.out = products, .a = within(group), .b = steps});
    refit_group(device_, work, group,
                {steps.as<const float>(), products.as<const float>(), row_sums}, total.as<float>());
    add_to_rows(inside, args_.h, all, total, 1.0f);
    for (const SlotRun& run : group.runs) {
      const TensorView changes = slice_rows(changes_.view(), 0, run.slots);
      change_codes(device_, work, run, changes.as<float>(),
                   total.row<float>(run.first - group.first));
      add_to_rows(inside, args_.h, run, changes, 1.0f);
    }
    const std::int64_t next = group.first + group.slots;
    add_to_rows({0, group.first}, args_.h, all, total, 1.0f);
    add_to_rows({next, in_ - next}, args_.h, all, total, 1.0f);
  }

  // H between the slots of a group.
  TensorView within(const GroupRuns& group) const {
    return slice_columns(slice_rows(args_.h, group.first, group.slots), group.first, group.slots);
  }

  FittingDevice& device_;
  const RoundArgs& args_;
  std::int64_t in_;
  std::int64_t out_;
  std::vector<GroupRuns> groups_;
  bool per_column_;  // whether each column has a scale of its own
  Tensor work_;
  Tensor values_;
  std::shared_ptr<std::uint8_t> codes_;
  std::shared_ptr<std::uint8_t> column_codes_;
  std::shared_ptr<std::uint16_t> scales_;
  std::shared_ptr<double> slot_sums_;  // [in]
  // A sweep has q − zero of a group's codes, H times that, and by how much values have changed.
  Tensor steps_, products_, total_;
  Tensor changes_;  // of a run
};

}  // namespace

RoundResult round(FittingDevice& device, const RoundArgs& args) {
  return MatrixRounding(device, args).run();
}

}  // namespace bl::cuda
